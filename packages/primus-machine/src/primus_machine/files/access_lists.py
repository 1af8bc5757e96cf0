"""POSIX access control lists: who else may write to a file, where the bits of its mode say its group may.

With such a list, these bits are the list's mask, and the umask of whoever makes a file does not count.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from typing import NamedTuple

from primus_machine.files.atomic import OTHERS_WRITE

__all__ = ["GROUP", "USER", "Entry", "keep_to_owner", "writers"]

_OF_FILE, _OF_NEW_FILES = "system.posix_acl_access", "system.posix_acl_default"
_OWNER, USER, _OWN_GROUP, GROUP, _MASK = 1, 2, 4, 8, 16
_WRITE = 2
_HEAD, _ENTRY = struct.Struct("<I"), struct.Struct("<HHI")


class Entry(NamedTuple):
    """One line of a list."""

    tag: int
    permissions: int
    number: int
    """Of the user or group; nothing else has one."""


def _entries(file: str | int, name: str = _OF_FILE) -> tuple[Entry, ...]:
    """The list of a file; empty: it has none, or its file system knows none."""
    try:
        data = os.getxattr(file, name)
    except OSError:
        return ()
    return tuple(Entry(*row) for row in _ENTRY.iter_unpack(data[_HEAD.size :]))


def writers(file: str | int) -> Iterator[Entry]:
    """Who may write to a file by its list, beside its owner and everybody."""
    found = _entries(file)
    masks = [entry.permissions for entry in found if entry.tag == _MASK]
    for entry in found:
        if entry.tag in (USER, _OWN_GROUP, GROUP) and entry.permissions & _WRITE & (masks[0] if masks else _WRITE):
            yield entry


def keep_to_owner(folder: str) -> None:
    """Let nobody else write to a new folder, and to what will lie in it.

    Raises:
        OSError: it cannot be changed.
    """
    mode = os.stat(folder).st_mode & 0o7777
    if mode & OTHERS_WRITE:  # despite the umask
        os.chmod(folder, mode & ~OTHERS_WRITE)
    if found := _entries(folder, _OF_NEW_FILES):
        rows = (
            entry if entry.tag == _OWNER else entry._replace(permissions=entry.permissions & ~_WRITE) for entry in found
        )
        os.setxattr(folder, _OF_NEW_FILES, _HEAD.pack(2) + b"".join(_ENTRY.pack(*row) for row in rows))
