"""A real podman for tests: a store and settings of its own, and an image made of this machine's own files.

`missing()` says why that cannot be had here; `Podman` is one.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.lab import images

IMAGE = "localhost/primus-lab:1"
_CLAMP = Path(__file__).with_name("runc-clamp")
_DRIVERS = ("overlay", "vfs")
"""Of the store; the first one is quick, and does not work on top of every file system."""


def missing() -> str:
    """Why there can be no container here; empty: there can."""
    if os.getuid():
        return "containers of these tests need root"
    lacking = [name for name in ("podman", "runc", "dpkg-query", "apt-cache") if not shutil.which(name)]
    return f"containers need {', '.join(lacking)}: `.ci/run` installs what it can" if lacking else ""


class Podman:
    """Podman with a store in `folder`; `environ` makes everybody use it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environ = {
            "CONTAINERS_CONF": str(folder / "containers.conf"),
            "CONTAINERS_STORAGE_CONF": str(folder / "storage.conf"),
        }
        (folder / "containers.conf").write_text(
            '[engine]\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\nruntime = "clamp"\n'
            f'[engine.runtimes]\nclamp = ["{_CLAMP}"]\n'
        )
        self._use(_DRIVERS[0])
        self.make_image(IMAGE, images.make_system)
        if self("run", "--rm", "--network", "host", IMAGE, "true").returncode:
            self._use(_DRIVERS[1])
            self.make_image(IMAGE, images.make_system)

    def _use(self, driver: str) -> None:
        (self.folder / "storage.conf").write_text(
            f'[storage]\ndriver = "{driver}"\nrunroot = "{self.folder}/run"\ngraphroot = "{self.folder}/{driver}"\n'
        )

    def __call__(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run `podman` with these words."""
        environ = {**os.environ, **self.environ}
        return subprocess.run(
            ["podman", *words], env=environ, text=True, capture_output=True, check=False, timeout=120,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip

    def make_image(self, name: str, fill: Callable[[Path], None], *, base: str = "") -> str:
        """An image of the files that `fill` puts into a folder, on top of `base`; its name."""
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            root = Path(folder) / "root"
            root.mkdir()
            fill(root)
            text = f"FROM {base or 'scratch'}\nCOPY root /\nENV PATH={images.PATH}\n"
            (Path(folder) / "Containerfile").write_text(text)
            made = self("build", "--quiet", "--tag", name, folder)
        assert not made.returncode, made.stderr
        return name

    def containers(self) -> list[str]:
        """Names of all containers, running or not."""
        return self("ps", "--all", "--format", "{{.Names}}").stdout.split()

    def inspect(self, name: str) -> str:
        """All that the engine tells of a container to whoever may ask."""
        return json.dumps(json.loads(self("inspect", name).stdout))

    def close(self) -> None:
        """Remove the store and all that is in it."""
        self("rm", "--all", "--force", "--time", "0")
        for driver in _DRIVERS:
            subprocess.run(["umount", "--quiet", f"{self.folder}/{driver}/{driver}"], capture_output=True, check=False)
        shutil.rmtree(self.folder, ignore_errors=True)
