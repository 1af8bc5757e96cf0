"""Who works on what, among nodes that share a file system: a file that one process creates and touches while it lives.

A node that sees such a file unchanged for a while, by its own clock, takes it over: the clocks of two hosts are never
compared. Two nodes may then do the same work for a moment. This is harmless, since both get the same result.
"""

from __future__ import annotations

import json
import os
import threading
import time
from contextlib import suppress
from types import TracebackType
from typing import Self

from primus_machine.files import lease
from primus_machine.files.atomic import create_whole, regular, staged
from primus_machine.host import HostRoot

__all__ = ["SILENT_S", "Claims"]

TOUCHED_EVERY_S = 2.0
SILENT_S = 15.0
"""After so long without a sign of life, an owner that cannot be seen is considered dead."""


class Claims:
    """The claims in a folder, and those that this process holds."""

    def __init__(self, folder: str, host: HostRoot) -> None:
        self.folder, self.host = folder, host
        self.text = json.dumps(lease.identity(host))
        self._held: set[str] = set()
        self._seen: dict[str, tuple[int, float]] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._touch, name="claims", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._over.set()
        self._thread.join()
        for name in tuple(self._held):
            self.release(name)

    def take(self, name: str) -> bool:
        """Whether it is this process's now.

        Raises:
            OSError: the folder is gone or full.
        """
        path = self._path(name)
        if not create_whole(path, self.text):
            if not self._is_dead(path):
                return False
            with suppress(FileNotFoundError):
                os.replace(path, aside := staged(path))
                os.unlink(aside)
            if not create_whole(path, self.text):
                return False
        self._held.add(name)
        return True

    def release(self, name: str) -> None:
        """Give it back. Where another process has taken it over meanwhile, it is that one's."""
        self._held.discard(name)
        with suppress(OSError):
            if self._is_own(name):
                os.unlink(self._path(name))

    def owner(self, name: str) -> str:
        """The host of who holds it, as far as it can be read."""
        with suppress(OSError), open(self._path(name), "rb", opener=regular) as file:
            return str(lease.parsed(file.read(1 << 12)).get("host", ""))
        return ""

    def are_dead(self) -> bool:
        """Whether nobody who could still live holds any."""
        with suppress(FileNotFoundError):
            return all(self._is_dead(f"{self.folder}/{name}") for name in os.listdir(self.folder))
        return True

    def _is_own(self, name: str) -> bool:
        with open(self._path(name), "rb", opener=regular) as file:
            return file.read(1 << 12) == self.text.encode()

    def _path(self, name: str) -> str:
        return f"{self.folder}/{name}.claim"

    def _is_dead(self, path: str) -> bool:
        try:
            with open(path, "rb", opener=regular) as file:  # opening it makes a client of NFS ask for the file's time
                owner, touched = lease.parsed(file.read(1 << 12)), os.fstat(file.fileno()).st_mtime_ns
        except FileNotFoundError:
            return True
        if (alive := lease.lives(owner, self.host)) is not None:
            return not alive
        before, since = self._seen.get(path, (0, 0.0))
        if touched != before:
            self._seen[path] = (touched, time.monotonic())
            return False
        return time.monotonic() - since > SILENT_S

    def _touch(self) -> None:
        while not self._over.wait(TOUCHED_EVERY_S):
            for name in tuple(self._held):
                with suppress(OSError):
                    if self._is_own(name):
                        os.utime(self._path(name))
