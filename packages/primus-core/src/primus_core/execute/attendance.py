"""Whether somebody still waits for what runs here, where nobody may be left to say that it shall end.

The engine keeps a container running when all that started it is killed at once, as a scheduler does at the end of a
job: a lock shows it, which its last holder's death frees. A scheduler that has lost sight of a node cannot end what
runs there: the run's record shows it. Either way Primus ends its part of the run as if it had been told to.
"""

from __future__ import annotations

import fcntl
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

from primus_core.runs.record import Record

__all__ = ["Attendance", "Course", "held"]

_EVERY_S = 0.5
_COURSE_EVERY_S = 5.0
"""A read of a small file, from each node, on a file system that all share."""


@contextmanager
def held(path: str) -> Iterator[None]:
    """Hold the lock `path`; so do the processes that are forked meanwhile. Without a path, or where there are no
    locks, nothing.
    """
    descriptor = _open(path)
    try:
        if descriptor >= 0:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # no file system for locks: whoever looks finds none, too
        pass
    try:
        yield
    finally:
        if descriptor >= 0:
            os.close(descriptor)


def _open(path: str) -> int:
    if not path:
        return -1
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    except OSError:
        return -1


class Attendance:
    """Looks at the lock `path`, if it is held to begin with: between two kernels, no lock is seen."""

    def __init__(self, path: str) -> None:
        self.path = path if path and not _is_free(path) else ""
        self.looked = time.monotonic()

    def look(self) -> None:
        """Send this process SIGTERM if nobody holds the lock any more. Often called, it looks now and then."""
        now = time.monotonic()
        if not self.path or now - self.looked < _EVERY_S:
            return
        self.looked = now
        if _is_free(self.path):
            self.path = ""
            os.kill(os.getpid(), signal.SIGTERM)


class Course:
    """Looks at the run's record: whether it goes on with this node."""

    def __init__(self, record: Record) -> None:
        self.record = record
        self.looked = time.monotonic()

    def look(self) -> None:
        """Send this process SIGTERM, once, if the run goes on without it. Often called, it looks now and then."""
        now = time.monotonic()
        if now - self.looked < _COURSE_EVERY_S:
            return
        self.looked = now
        if not self.record.goes_on():
            self.looked = float("inf")
            os.kill(os.getpid(), signal.SIGTERM)


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
