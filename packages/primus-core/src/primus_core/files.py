"""Files appear whole or not at all."""

from __future__ import annotations

import errno
import os

__all__ = ["FULL", "PRIVATE", "PRIVATE_FOLDER", "link_atomically", "write_atomically"]

FULL = (errno.ENOSPC, errno.EDQUOT)
"""The errors of a file system, or of a person's share of it, that takes no more."""
PRIVATE, PRIVATE_FOLDER = 0o600, 0o700
"""The modes of what holds a person's environment or code."""


def write_atomically(path: str, text: str, *, durable: bool = True, mode: int = 0) -> None:
    """Write `text` to `path`: staged beside it, flushed to disk (if `durable`), renamed: the old file or the new.

    Without a `mode` it has that of every new file.
    """
    staged = _staged(path)
    try:
        with open(staged, "w", encoding="utf-8", errors="surrogateescape", newline="") as file:
            if mode:
                os.fchmod(file.fileno(), mode)
            file.write(text)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(staged, path)
    except BaseException:
        if os.path.exists(staged):
            os.unlink(staged)
        raise


def link_atomically(target: str, path: str) -> bool:
    """Point the symbolic link `path` at `target`. False: something that is no link stands there, and stays."""
    if os.path.lexists(path) and not os.path.islink(path):
        return False
    staged = _staged(path)
    if os.path.lexists(staged):  # of a process that was killed here; in containers pids come again
        os.unlink(staged)
    os.symlink(target, staged)
    os.replace(staged, path)
    return True


def _staged(path: str) -> str:
    """Of this process alone: nodes share a folder, and in containers all may have the same process id."""
    return f"{path}.{os.uname().nodename}.{os.getpid()}.partial"
