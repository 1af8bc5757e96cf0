"""Lines of plain, gzip and zstandard files, whatever they are read from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO

from primus_data.sources import lines
from primus_machine.errors import PrimusError
from primus_machine.text import printable

__all__ = ["LONGEST", "blocks", "damaged", "split"]

LONGEST = 1 << 30
"""Bytes of a document that is one file."""
_KINDS = {"gz": "gzip", "zst": "zstd"}


def blocks(file: IO[bytes], compression: str, name: str, size: int) -> Iterator[bytes]:
    """Whole lines, some megabytes at a time. `name`: as errors call the file. `size`: of the file.

    Raises:
        PrimusError: it was cut off, or is of another format.
        MachineError: the library for this compression is missing.
    """
    try:
        found = lines.compressed(file, _KINDS[compression]) if compression else lines.plain(file, 0, size)
        for block, _ in found:
            yield block
    except lines.Damaged as error:
        raise damaged(name, str(error)) from None


def damaged(name: str, why: str) -> PrimusError:
    """The error for a file that cannot be read on."""
    return PrimusError(f"{name} is damaged", why=printable(why)[:500], fix="get it again")


def split(file: IO[bytes], compression: str, name: str, size: int) -> Iterator[bytes]:
    """The lines of a file, without their ends.

    Raises:
        PrimusError: as above.
    """
    for block in blocks(file, compression, name, size):
        found = block.split(b"\n")
        yield from found if found[-1] else found[:-1]
