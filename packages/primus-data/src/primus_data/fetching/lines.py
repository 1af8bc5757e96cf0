"""Lines of plain, gzip and zstandard files, whatever they are read from."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

from primus_data.sources import lines
from primus_machine.errors import PrimusError
from primus_machine.text import printable

__all__ = ["LONGEST", "blocks", "damaged", "split"]

LONGEST = 1 << 30
"""Bytes of a document that is one file."""
_KINDS = {"gz": "gzip", "zst": "zstd"}


def blocks(file: IO[bytes], compression: str, name: str) -> Iterator[bytes]:
    """The content, some megabytes at a time. `name`: as errors call the file.

    Raises:
        PrimusError: it was cut off, or is of another format.
        MachineError: the library for this compression is missing.
    """
    with _told(name):
        yield from lines.pieces(file, _KINDS.get(compression, ""))


@contextmanager
def _told(name: str) -> Iterator[None]:
    try:
        yield
    except lines.Damaged as error:
        raise damaged(name, str(error)) from None


def damaged(name: str, why: str) -> PrimusError:
    """The error for a file that cannot be read on."""
    return PrimusError(f"{name} is damaged", why=printable(why)[:500], fix="get it again")


def split(file: IO[bytes], compression: str, name: str, size: int) -> Iterator[bytes]:
    """The lines of a file, without their ends. `size`: of the file.

    Raises:
        PrimusError: as above.
        MachineError: as above.
    """
    with _told(name):
        found = lines.compressed(file, _KINDS[compression]) if compression else lines.plain(file, 0, size)
        for rows, _ in found:
            yield from (row.removesuffix(b"\n") for row in rows)
