"""Real engines for tests, each with a store of its own, and an image made of this machine's own files.

`missing()` says why one cannot be had here; `Podman` and `Docker` are such.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.lab import images

IMAGE = "localhost/primus-lab:1"
_CLAMP = Path(__file__).with_name("runc-clamp")
_DRIVERS = ("overlay", "vfs")
"""Of podman's store; the first one is quick, and does not work on top of every file system."""
_NEEDED = {"podman": ("podman",), "docker": ("docker", "dockerd", "containerd")}
_DEBIAN = {"podman": "podman", "docker": "docker.io"}
"""The packages that have them."""
_START_S = 60


def missing(engine: str = "podman") -> str:
    """Why there can be no container of `engine` here; empty: there can."""
    if os.getuid():
        return f"{engine} needs root in these tests"
    needed = (*_NEEDED[engine], "runc", "dpkg-query", "apt-cache")
    lacking = [name for name in needed if not shutil.which(name)]
    return f"containers need {', '.join(lacking)}: apt-get install {_DEBIAN[engine]} runc" if lacking else ""


class Engine:
    """An engine with all that is its own in `folder`; `environ` makes everybody use it."""

    name: str
    environ: dict[str, str]

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run the engine's command with these words."""
        environ = {**os.environ, **self.environ}
        return subprocess.run(
            [self.name, *words], env=environ, text=True, capture_output=True, check=False, timeout=120,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip

    def make_image(self, name: str, fill: Callable[[Path], None], *, base: str = "") -> str:
        """An image of the files that `fill` puts into a folder, on top of `base`; its name."""
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            root = Path(folder) / "root"
            root.mkdir()
            fill(root)
            text = f"FROM {base or 'scratch'}\nCOPY root /\nENV PATH={images.PATH}\n"
            (Path(folder) / "Dockerfile").write_text(text)
            made = self("build", "--quiet", "--tag", name, folder)
        assert not made.returncode, made.stderr
        return name

    def containers(self) -> list[str]:
        """Names of all containers, running or not."""
        return self("ps", "--all", "--format", "{{.Names}}").stdout.split()

    def remove(self, *names: str) -> None:
        """Containers, without waiting for what runs in them."""
        for name in names:  # not in one command: of which podman removes nothing, and is content, if one has gone
            self("kill", name)
            self("rm", "--force", name)

    def inspect(self, name: str) -> str:
        """All that the engine tells of a container to whoever may ask."""
        return json.dumps(json.loads(self("inspect", name).stdout))

    def close(self) -> None:
        """End it, and remove all that it has."""
        raise NotImplementedError


class Podman(Engine):
    """Podman, which has no daemon."""

    name = "podman"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.environ = {
            "CONTAINERS_CONF": str(folder / "containers.conf"),
            "CONTAINERS_STORAGE_CONF": str(folder / "storage.conf"),
        }
        (folder / "containers.conf").write_text(
            '[engine]\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\nruntime = "clamp"\n'
            # Else all stores of a machine share them, and one podman frees what another one holds.
            f'tmp_dir = "{folder}/tmp"\nlock_type = "file"\n'
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

    def close(self) -> None:
        """Remove the store, too."""
        self.remove(*self.containers())
        for driver in _DRIVERS:
            _unmount(self.folder / driver / driver)
        shutil.rmtree(self.folder, ignore_errors=True)


class Docker(Engine):
    """Docker with a daemon of its own, which leaves the machine's network as it is."""

    name = "docker"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        socket = f"unix://{folder}/docker.sock"
        # The daemon of Debian 12 has no BuildKit, which newer clients expect.
        self.environ = {"DOCKER_HOST": socket, "DOCKER_CONFIG": f"{folder}/client", "DOCKER_BUILDKIT": "0"}
        with (folder / "dockerd.log").open("wb") as log:
            self.daemon = subprocess.Popen(
                ["dockerd", *self._options(socket)], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip
        self._wait()
        self.make_image(IMAGE, images.make_system)

    def _options(self, socket: str) -> list[str]:
        own = {"data-root": "data", "exec-root": "exec", "pidfile": "dockerd.pid"}
        return [
            *("--host", socket, "--bridge", "none", "--iptables=false", "--ip6tables=false", "--ip-forward=false"),
            *(word for option, name in own.items() for word in (f"--{option}", f"{self.folder}/{name}")),
            *("--exec-opt", "native.cgroupdriver=cgroupfs"),
            *("--add-runtime", f"clamp={_CLAMP}", "--default-runtime", "clamp"),
        ]

    def _wait(self) -> None:
        deadline = time.monotonic() + _START_S
        while self("info").returncode:
            if self.daemon.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError((self.folder / "dockerd.log").read_text()[-2000:])
            time.sleep(0.1)

    def close(self) -> None:
        """End the daemon, too."""
        self.remove(*self.containers())
        self.daemon.terminate()
        self.daemon.wait(_START_S)
        _unmount(self.folder / "exec/netns/default")
        shutil.rmtree(self.folder, ignore_errors=True)


def _unmount(path: Path) -> None:
    subprocess.run(["umount", "--quiet", path], capture_output=True, check=False)
