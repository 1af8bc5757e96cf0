"""What merge and split write: room for it is looked for first, and it gets its name when it is whole."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from primus_data.indexed.joined import publish
from primus_machine.errors import MachineError, RequestError
from primus_machine.files.atomic import FULL, staged

__all__ = ["expect_room", "refuse_existing", "written"]


def refuse_existing(prefixes: Sequence[str]) -> None:
    """An output is never overwritten.

    Raises:
        RequestError: a file of it is there.
    """
    for path in (prefix + suffix for prefix in prefixes for suffix in (".bin", ".idx")):
        if os.path.lexists(path):
            raise RequestError(f"output '{path}' exists", fix="remove it, or choose another --output-prefix")


def expect_room(folder: str, needed: int) -> None:
    """So many bytes must be free in a folder, which is made if it is missing.

    Raises:
        MachineError: they are not, or there can be no such folder.
    """
    try:
        os.makedirs(folder or ".", exist_ok=True)
        found = os.statvfs(folder or ".")
    except OSError as error:
        raise MachineError(f"folder '{folder}' cannot be written in", why=str(error.strerror)) from None
    free = found.f_bavail * found.f_frsize
    if free < needed:
        why = f"{needed / 1e9:,.2f} GB are needed, and {free / 1e9:,.2f} GB are free"
        raise MachineError(f"there is no room in '{folder or '.'}'", why=why, fix="free some, or write elsewhere")


@contextmanager
def written(prefixes: Sequence[str], describe: Callable[[str], object]) -> Iterator[list[str]]:
    """Names to write these prefixes under. They are renamed when all are whole; after an error, nothing is left.

    `describe` writes what is known of a prefix beside it, before its index appears.

    Raises:
        RequestError: an output is there.
        MachineError: they cannot be written.
    """
    refuse_existing(prefixes)
    names = [staged(prefix) for prefix in prefixes]
    try:
        yield names
        refuse_existing(prefixes)  # it may have appeared meanwhile
        for name, prefix in zip(names, prefixes, strict=True):
            describe(prefix)
            publish(name, prefix)
    except OSError as error:
        why = "the disk is full" if error.errno in FULL else str(error.strerror or error)
        raise MachineError(f"'{error.filename or prefixes[0]}' cannot be written", why=why) from None
    finally:
        for path in (name + suffix for name in names for suffix in (".bin", ".idx")):
            with suppress(OSError):
                os.unlink(path)
