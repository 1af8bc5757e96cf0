"""The one door to the machine: its pseudo file systems, its environment, its clock.

Everything is read below `root`, so that a captured tree of another machine can stand in for this one.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["HostRoot"]


@dataclass(frozen=True, slots=True)
class HostRoot:
    """A machine to read: `root` holds its `/sys`, `/proc` and `/dev`."""

    root: str = "/"
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))

    def _real(self, path: str) -> str:
        return os.path.join(self.root, path.lstrip("/"))

    def text(self, path: str) -> str | None:
        """The text of a file of the machine, stripped; None where it cannot be read."""
        try:
            with open(self._real(path), encoding="utf-8", errors="replace") as file:
                return file.read().strip()
        except OSError:
            return None

    def names(self, path: str) -> tuple[str, ...]:
        """What a folder of the machine holds, sorted; nothing where there is none."""
        try:
            return tuple(sorted(os.listdir(self._real(path))))
        except OSError:
            return ()

    def now(self) -> float:
        """Seconds since the epoch."""
        return time.time()

    def hostname(self) -> str:
        """The host's name as the kernel has it."""
        return os.uname().nodename

    def cwd(self) -> str:
        """The folder where the person stands."""
        return os.getcwd()

    def cpu_count(self) -> int:
        """CPUs that this process may run on (an allocation or a container may allow fewer than the machine has)."""
        return len(os.sched_getaffinity(0))

    def python(self) -> str:
        """The running interpreter."""
        return sys.executable

    def free_port(self) -> int:
        """A TCP port that nobody listens on, below those that the kernel hands out, so that it stays free a while."""
        import socket

        first = time.time_ns() // 1000 + os.getpid()
        for offset in range(100):
            port = 20000 + (first + offset) % 12000
            with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
                try:
                    probe.bind(("", port))
                except OSError:
                    continue
                return port
        return 0  # a machine with no free port in a hundred: the launcher's error says it best

    def exists(self, path: str) -> bool:
        """Whether a file or folder of the person is there, a dangling link included."""
        return os.path.lexists(path)
