"""Files that a person names, or that lie in a shared folder: none is waited for, none is found to be wrong too late."""

from __future__ import annotations

import errno
import os
import stat

from primus_core.errors import RequestError

__all__ = ["check_output", "text_of"]

_LONGEST = 64 << 20
"""A report of thousands of findings has a few."""


def text_of(path: str) -> str:
    """What a regular file says.

    Raises:
        OSError: it cannot be read, or is none: a FIFO would be waited for.
        UnicodeDecodeError: it is no text.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, encoding="utf-8") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", path)
        text = file.read(_LONGEST + 1)
        if len(text) > _LONGEST:
            raise OSError(errno.EFBIG, f"it is larger than {_LONGEST >> 20} MiB", path)
        return text


def check_output(option: str, path: str) -> None:
    """Whether a file can be written there, as far as one can see before.

    Raises:
        RequestError: it cannot.
    """
    if why := _unwritable(os.path.abspath(path)):
        raise RequestError(f"{option} {path}: this file cannot be written", why=why, fix="name another file")


def _unwritable(path: str) -> str:
    if os.path.lexists(path) and not os.path.isfile(path):
        return "it is not a regular file"
    folder = os.path.dirname(path)
    while not os.path.lexists(folder):
        folder = os.path.dirname(folder)
    if not os.path.isdir(folder):
        return f"{folder} is not a folder"
    return "" if os.access(folder, os.W_OK | os.X_OK) else f"{folder} is not writable"
