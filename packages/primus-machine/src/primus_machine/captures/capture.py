"""A machine in a file: exactly what detection reads of it, without what names it.

    write(HostRoot(), "node.tar.gz")            on the machine
    facts.read(read("node.tar.gz", HostRoot())) anywhere

The archive holds the machine's files under their own paths, and `facts.json`, which says what it is. Unpacked, it is a
tree that `read` takes as well, as it takes the mounted root of another machine.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import tarfile
import zlib
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from primus_machine import cgroups, facts, system_info
from primus_machine.captures.anonymous import HOSTNAME, anonymise
from primus_machine.errors import RequestError
from primus_machine.files import plain_json
from primus_machine.files.atomic import create, staged
from primus_machine.host import ABOUT, HostRoot
from primus_machine.secrets.redaction import redact

__all__ = ["SCHEMA", "CapturedHost", "read", "write"]

SCHEMA = 1
"""Version of the archive's form. It changes when an old reader would misread a new archive."""

_TOOLS = ("opt/rocm/", "usr/local/cuda/")
"""Of these only versions matter, and not where the person has them."""
_MAX_BYTES = 16 * 2**20
_MAX_DEPTH = 32
"""A machine of 64 devices and ten adapters takes two megabytes, unpacked. Much more is no capture, or a trap."""


class _Recorder(HostRoot):
    """`host`, and what was read of it."""

    def __init__(self, host: HostRoot) -> None:
        super().__init__(host.root, {})
        self.host = host
        self.texts: dict[str, str] = {}
        self.folders: dict[str, tuple[str, ...]] = {}
        self.recorded: dict[str, dict[str, Any]] = {"access": {}, "space": {}}

    def text(self, path: str, limit: int = -1) -> str | None:
        text = self.host.text(path, limit)
        if text is not None and len(text) >= len(self.texts.get(path, "")):
            self.texts[path] = text
        return text

    def names(self, path: str) -> tuple[str, ...]:
        self.folders[path] = self.host.names(path)
        return self.folders[path]

    def access(self, path: str) -> str:
        self.recorded["access"][path] = self.host.access(path)
        return str(self.recorded["access"][path])

    def space(self, path: str) -> tuple[int, int] | None:
        self.recorded["space"][path] = self.host.space(path)
        return self.host.space(path)

    def hostname(self) -> str:
        return self.host.hostname()

    def cpu_count(self) -> int:
        return self.host.cpu_count()


class CapturedHost(HostRoot):
    """A machine that is known by a capture. What is the person's own, and the clock, are those of `here`."""

    def __init__(
        self, path: str, here: HostRoot, texts: Mapping[str, str], folders: Mapping[str, tuple[str, ...]]
    ) -> None:
        super().__init__(path, here.environ)
        self.here = here
        self.texts = texts
        self.folders = folders

    def text(self, path: str, limit: int = -1) -> str | None:
        found = self.texts.get(_plain(path))
        return found if found is None or limit < 0 else found[:limit].strip()

    def why_unread(self, path: str) -> str:
        text = self.texts.get(_plain(path))
        return ("" if text else "is empty") if text is not None else "cannot be read: the capture lacks it"

    def names(self, path: str) -> tuple[str, ...]:
        return self.folders.get(_plain(path), ())

    def now(self) -> float:
        return self.here.now()

    def cwd(self) -> str:
        return self.here.cwd()

    def python(self) -> str:
        return self.here.python()

    def free_port(self) -> int:
        return self.here.free_port()

    def exists(self, path: str) -> bool:
        return self.here.exists(path)


def write(host: HostRoot, path: str, reads: Iterable[str] = (), primus_version: str = "") -> None:
    """Capture `host` in the file `path`. The same machine gives the same bytes.

    `reads`: patterns of further files, as checks name them; `access:PATH` and `space:PATH` ask for these.
    `primus_version`: of what writes it, for whoever reads it later.

    Raises:
        RequestError: nothing can be written there, or something would be lost.
    """
    _check_place(path)
    found = facts.read(host)
    recorder = _recorder(host, reads)
    files = anonymise(_recorded(recorder) | _as_files(found))
    texts = {name: text for name, text in files.items() if not name.endswith("/")}
    folders = {name.rstrip("/") for name in files.keys() - texts.keys()}
    about = {
        "schema": SCHEMA,
        "primus_version": primus_version,
        "hostname": HOSTNAME,
        "cpu_count": found.cpu_count,
        **_answers(recorder),
    }
    texts[ABOUT] = json.dumps(about, indent=1) + "\n"
    _write_archive(path, texts, folders - texts.keys())


def _check_place(path: str) -> None:
    if not path:
        raise RequestError("the capture has no file name", fix="for example -o node.tar.gz")
    if os.path.lexists(path) and (os.path.islink(path) or not os.path.isfile(path)):
        raise RequestError(
            f"{path}: the capture cannot be written",
            why="it is a link, a folder or a device, not a regular file",
            fix="name another file",
        )


def _recorder(host: HostRoot, reads: Iterable[str]) -> _Recorder:
    """It reads for somebody who has no variables: a path to which one leads is the person's own, and no part of it."""
    recorder = _Recorder(host)
    system_info.describe(facts.read(recorder))
    for name in cgroups.LIMITS:  # its own way to the root; the folders would name others' jobs
        for path in cgroups.files(recorder, name):
            recorder.text(path)
            recorder.text(f"{os.path.dirname(path)}/cgroup.controllers")  # shows a cgroup that sets no limit
    for pattern in reads:
        how, _, plain = pattern.rpartition(":/")
        ask = {"access": recorder.access, "space": recorder.space}.get(how, recorder.text)
        for path in recorder.paths(plain if how in recorder.recorded else pattern):
            ask(path)
    return recorder


def _recorded(recorder: _Recorder) -> dict[str, str]:
    """What was read, as the archive names it; a folder's name ends in `/`."""
    listed = {f"{_plain(folder)}/{name}/": "" for folder, names in recorder.folders.items() for name in names}
    texts = {_plain(path): text for path, text in recorder.texts.items()}
    return listed | {path: text for path, text in texts.items() if not path.startswith(_TOOLS)}


def _answers(recorder: _Recorder) -> dict[str, dict[str, Any]]:
    """What was asked and answered, and no file says."""
    known = {
        what: {path: recorded for path, recorded in asked.items() if recorded}
        for what, asked in recorder.recorded.items()
    }
    return {what: asked for what, asked in known.items() if asked}


def _as_files(found: facts.Facts) -> dict[str, str]:
    """Facts that no file says, or one to which a variable of the person's led, as the files where `HostRoot` looks."""
    files: dict[str, str | int] = {
        "proc/sys/kernel/hostname": HOSTNAME,
        "sys/devices/system/cpu/online": found.cpu_count and f"0-{found.cpu_count - 1}",
        "opt/rocm/.info/version": found.rocm,
        "usr/local/cuda/version.txt": found.cuda and f"CUDA Version {found.cuda}",
    }
    return {name: str(text) for name, text in files.items() if text}


def read(path: str, here: HostRoot) -> HostRoot:
    """The machine in `path`: a capture, or a folder that holds another machine's `/sys` and `/proc`.

    Raises:
        RequestError: it is neither.
    """
    if os.path.isdir(path):
        if not any(os.path.isdir(os.path.join(path, name)) for name in ("sys", "proc")):
            _refuse(path, "the folder has neither sys/ nor proc/")
        return HostRoot(os.path.abspath(path), here.environ)
    if os.path.exists(path) and not os.path.isfile(path):
        _refuse(path, "it is not a regular file")  # a FIFO would be waited for
    texts, folders = _read_archive(path)
    _check(path, texts.get(ABOUT, ""))
    return CapturedHost(path, here, texts, _listings((*texts, *folders)))


def _plain(path: str) -> str:
    """The name under which the archive has a file of the machine."""
    return "/".join(part for part in path.split("/") if part not in ("", "."))


def _write_archive(path: str, texts: Mapping[str, str], folders: Iterable[str]) -> None:
    stage = staged(path)
    try:
        with open(stage, "wb", opener=create) as file:
            # No time and no name in the header: both would change the bytes.
            with gzip.GzipFile("", "wb", mtime=0, fileobj=file) as packed:
                packed.write(_archive(texts, folders))
            file.flush()
            os.fsync(file.fileno())
        os.replace(stage, path)
    except OSError as error:
        raise RequestError(
            f"{path}: the capture cannot be written",
            why=str(error.strerror),
            fix="name a file in an existing folder that is writable",
        ) from None
    finally:
        if os.path.exists(stage):
            os.unlink(stage)


def _archive(texts: Mapping[str, str], folders: Iterable[str]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for folder in sorted(folders):
            archive.addfile(_member(folder, tarfile.DIRTYPE))
        for name, text in sorted(texts.items()):
            data = redact(text).encode()
            archive.addfile(_member(name, tarfile.REGTYPE, len(data)), io.BytesIO(data))
    return packed.getvalue()


def _member(name: str, kind: bytes, size: int = 0) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.size = kind, size
    member.mode = 0o755 if kind == tarfile.DIRTYPE else 0o644
    return member


def _read_archive(path: str) -> tuple[dict[str, str], list[str]]:
    """Texts and folders in the archive. Nothing is written to disk; a link in it means nothing."""
    texts, folders = {}, []
    try:
        with tarfile.open(fileobj=io.BytesIO(_unpacked(path)), mode="r:") as archive:
            for member in archive:
                name = _checked(member.name)
                if member.isdir():
                    folders.append(name)
                elif member.isreg() and not member.issparse() and (content := archive.extractfile(member)):
                    texts[name] = content.read().decode("utf-8", "replace")
    except (tarfile.TarError, zlib.error, EOFError, OSError, ValueError) as error:
        _refuse(path, getattr(error, "strerror", None) or str(error))
    except (RecursionError, OverflowError):  # tarfile trusts the lengths and the nesting of what it reads
        _refuse(path, "it is damaged or malicious")
    return texts, folders


def _checked(name: str) -> str:
    if name.count("/") > _MAX_DEPTH:
        raise ValueError("the folders in it are too deep")
    if not name.isprintable():
        raise ValueError(f"a name in it contains characters that no kernel writes: {name!a}")
    return _plain(name)


def _unpacked(path: str) -> bytes:
    with gzip.open(path) as packed:
        data = packed.read(_MAX_BYTES + 1)
    if len(data) > _MAX_BYTES:
        raise ValueError(f"unpacked, it is larger than {_MAX_BYTES >> 20} MiB")
    return data


def _check(path: str, text: str) -> None:
    try:
        about = plain_json.loads(text)
        schema = about["schema"]
    except (ValueError, KeyError, TypeError, RecursionError):
        _refuse(path, f"it has no valid {ABOUT}")
    if schema != SCHEMA:
        _refuse(
            path,
            f"its schema version is {schema}, but this version of Primus reads {SCHEMA}: use the version that wrote it",
        )


def _listings(paths: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """What each folder holds."""
    found: dict[str, set[str]] = {}
    for path in paths:
        while path:
            folder, _, name = path.rpartition("/")
            found.setdefault(folder, set()).add(name)
            path = folder  # noqa: PLW2901  # from the leaf to the root
    return {folder: tuple(sorted(names)) for folder, names in found.items()}


def _refuse(path: str, why: str) -> NoReturn:
    raise RequestError(
        f"'{path}' is not a capture of a machine",
        why=why,
        fix="`primus env capture -o FILE` on the machine writes one; a folder with its sys/ and proc/ also works",
    )
