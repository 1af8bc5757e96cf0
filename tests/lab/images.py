"""Container images made of this machine's own files, without any registry: its Debian packages, its Python, Primus."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

PACKAGES = (
    *("bash", "dash", "coreutils", "grep", "sed", "findutils", "mawk", "hostname", "procps", "util-linux", "iproute2"),
    *("libc-bin", "base-files", "netbase", "python3", "libgomp1", "libstdc++6"),
    # What interpreters and wheels from elsewhere load, as far as it is here.
    *("libssl3", "libffi8", "zlib1g", "libbz2-1.0", "liblzma5", "libsqlite3-0", "libreadline8", "libncursesw6"),
    *("libuuid1", "libexpat1", "libgdbm6", "libdb5.3", "libcrypt1"),
)
_LEFT_OUT = re.compile(r"/usr/share/(doc|man|locale|info|lintian|bash-completion|bug)/|/usr/lib/systemd/")
_OF_PYTHON = (*("test", "site-packages", "idlelib", "tkinter", "__pycache__", "*.a", "config-*", "sitecustomize.py"),)
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def make_system(root: Path) -> None:
    """Fill `root` with a small system: the files of this machine's packages, and its Python where /usr/local has it."""
    for folder in ("etc", "proc", "sys", "dev", "root", "run", "tmp", "var/tmp", "usr/bin", "usr/lib", "usr/lib64"):
        (root / folder).mkdir(parents=True)
    (root / "usr/sbin").mkdir()
    for name in ("bin", "lib", "lib64", "sbin"):
        (root / name).symlink_to(f"usr/{name}")
    for folder in ("tmp", "var/tmp"):
        (root / folder).chmod(0o1777)
    (root / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n")
    (root / "etc/group").write_text("root:x:0:\nvideo:x:44:\nnogroup:x:65534:\n")
    (root / "etc/nsswitch.conf").write_text("passwd: files\ngroup: files\nhosts: files dns\n")
    _copy(sorted({*_files_of_packages(), "/bin/sh", "/bin/awk"}), root)
    if sys.base_prefix in ("/usr", "/usr/local"):  # a Python of the image's own place cannot be mounted there
        add_python(root)


def _files_of_packages() -> Iterator[str]:
    depends = ["apt-cache", "depends", "--recurse", "--installed", "--no-recommends", "--no-suggests"]
    others = [f"--no-{kind}" for kind in ("conflicts", "breaks", "replaces", "enhances")]
    found = subprocess.run([*depends, *others, *PACKAGES], capture_output=True, text=True, check=False).stdout
    names = sorted({line for line in found.splitlines() if re.match(r"[a-z0-9]", line)})
    listed = subprocess.run(["dpkg-query", "-L", *names], capture_output=True, text=True, check=False).stdout
    for line in set(listed.splitlines()):
        path = Path(line)
        if line.startswith("/") and not _LEFT_OUT.match(line) and (path.is_symlink() or path.is_file()):
            yield line


def _copy(paths: list[str], root: Path) -> None:
    pack = ["tar", "-C", "/", "--no-recursion", "--ignore-failed-read", "-c", "-T", "-"]
    names = "".join(f"{path.removeprefix('/')}\n" for path in paths if os.path.lexists(path))
    packed = subprocess.run(pack, input=names.encode(), capture_output=True, check=False).stdout
    subprocess.run(["tar", "-C", str(root), "-x", "--keep-directory-symlink"], input=packed, check=True)


def add_python(root: Path) -> None:
    """This interpreter's own, at its place."""
    base = Path(sys.base_prefix)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    target = root / base.relative_to("/")
    left_out = shutil.ignore_patterns(*_OF_PYTHON)
    shutil.copytree(base / "lib" / version, target / "lib" / version, ignore=left_out, dirs_exist_ok=True)
    if base == Path("/usr"):
        return  # the packages bring the rest; of the library, some parts are packages of their own
    (target / "bin").mkdir(parents=True, exist_ok=True)
    for name in (f"bin/{version}", f"lib/lib{version}.so.1.0"):
        if (base / name).exists():
            shutil.copy2(base / name, target / name)


def add_primus(root: Path) -> None:
    """The kernel and what it needs as packages in /opt/primus, and the command at a place on PATH."""
    add_python(root)
    packages = root / "opt/primus"
    for name in sorted(_needs("primus-core")):
        distribution = importlib.metadata.distribution(name)
        for file in distribution.files or ():
            source = Path(str(distribution.locate_file(file)))
            if ".." not in file.parts and source.suffix != ".pth" and source.is_file():
                (packages / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, packages / file)
    skipped = shutil.ignore_patterns("__pycache__")
    for module in (import_module(name) for name in ("primus_core", "primus_machine")):
        source = Path(str(module.__file__)).parent
        shutil.copytree(source, packages / source.name, ignore=skipped, dirs_exist_ok=True)
    interpreter = os.path.realpath(sys.executable)
    add_command(root, f'PYTHONPATH=/opt/primus exec {interpreter} -m primus_core "$@"')


def add_command(root: Path, script: str) -> None:
    """A `primus` that does what `script` says."""
    command = root / "usr/local/bin/primus"
    command.parent.mkdir(parents=True, exist_ok=True)
    command.write_text(f"#!/bin/sh\n{script}\n")
    command.chmod(0o755)


def add_framework(root: Path) -> None:
    """A `torch` in the image's own Python."""
    package = root / "usr/lib/python3/dist-packages/torch"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text('__version__ = "of the image"\n')


def _needs(name: str) -> set[str]:
    """A distribution and all that it needs here."""
    found, queue = set[str](), [name]
    while queue:
        name = queue.pop()
        try:
            requires = importlib.metadata.distribution(name).requires or []
        except importlib.metadata.PackageNotFoundError:
            continue
        found.add(name)
        names = [re.split(r"[^\w.-]", text)[0] for text in requires if "extra ==" not in text]
        queue += [needed for needed in names if needed not in found]
    return found
