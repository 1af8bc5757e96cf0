"""Watches that end this part of a run when nobody is left to stop it.

The engine keeps a container running when all that started it is killed at once, as a scheduler does at the end of a
job: a lock shows it, since the death of its last holder frees it. A scheduler that has lost a node cannot end what runs
there: the run's record shows it. Either way, Primus ends its part of the run as after SIGTERM.
"""

from __future__ import annotations

import fcntl
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from primus_core.contracts.observer import Observer, Ranks
from primus_core.runs.record_writer import RecordWriter

__all__ = ["LockWatch", "RecordWatch", "held"]


@contextmanager
def held(path: str) -> Iterator[None]:
    """Hold the lock `path`, and with it all processes forked meanwhile. Without a path or locks, nothing."""
    descriptor = _open(path)
    try:
        if descriptor is not None:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # no file system for locks: whoever looks finds none, too
        pass
    try:
        yield
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _open(path: str) -> int | None:
    if not path:
        return None
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    except OSError:
        return None


class _Watch(Observer):
    """Looks now and then whether somebody still wants what runs here, and ends it once nobody does."""

    every_s: float

    def __init__(self) -> None:
        self.look_at = time.monotonic() + self.every_s

    def look(self, ranks: Callable[[], Ranks]) -> None:
        """Send this process SIGTERM, once, if it is over. May be called often."""
        if (now := time.monotonic()) < self.look_at:
            return
        self.look_at = now + self.every_s
        if self._is_over():
            self.look_at = float("inf")
            os.kill(os.getpid(), signal.SIGTERM)

    def _is_over(self) -> bool:
        raise NotImplementedError


class LockWatch(_Watch):
    """Whether somebody holds the lock `path`, if it is held to begin with: between two kernels, no lock is seen."""

    every_s = 0.5

    def __init__(self, path: str) -> None:
        super().__init__()
        self.path = path if path and not _is_free(path) else ""

    def _is_over(self) -> bool:
        return bool(self.path) and _is_free(self.path)


class RecordWatch(_Watch):
    """Whether the run, by its record, still counts on this node."""

    every_s = 5.0
    """A read of a small file, from each node, on a file system that all share."""

    def __init__(self, record: RecordWriter) -> None:
        super().__init__()
        self.record = record

    def _is_over(self) -> bool:
        return not self.record.is_current()


def _is_free(path: str) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:  # nobody ever held it, or the run directory was removed
        return True
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True
