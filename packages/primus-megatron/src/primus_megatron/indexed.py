"""Megatron's data files, written as a stream: token ids in `.bin`, and where each document begins in `.idx`.

Memory holds twelve bytes a document, never the tokens. A data package may take this over.
"""

from __future__ import annotations

import os
import struct
import sys
from array import array
from collections.abc import Sequence
from types import TracebackType
from typing import Self

__all__ = ["IndexedWriter"]

_MAGIC, _VERSION = b"MMIDIDX\x00\x00", 1
_UINT16, _INT32 = 8, 4
_SMALL_VOCABULARY = 65500
"""Below this, Megatron keeps ids in 16 bits."""


class IndexedWriter:
    """Writes `<prefix>.bin` and `<prefix>.idx`, both little-endian. The index comes last: with it, they are whole."""

    def __init__(self, prefix: str, vocab_size: int) -> None:
        self.prefix, self.small = prefix, vocab_size < _SMALL_VOCABULARY
        self.lengths = array("i")
        self.documents = array("q", [0])
        self.bin = open(f"{prefix}.bin", "wb")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.bin.flush()
        os.fsync(self.bin.fileno())
        self.bin.close()
        if error is None:
            self._write_index()

    def add(self, ids: Sequence[int]) -> None:
        """One document. An empty one counts as a document, and has no sequence."""
        if ids:
            self.bin.write(_little(array("H" if self.small else "i", ids)))
            self.lengths.append(len(ids))
        self.documents.append(len(self.lengths))

    def _write_index(self) -> None:
        kind, width = (_UINT16, 2) if self.small else (_INT32, 4)
        offsets, at = array("q"), 0
        for length in self.lengths:
            offsets.append(at)
            at += length * width
        with open(f"{self.prefix}.idx", "wb") as file:
            file.write(_MAGIC + struct.pack("<QBQQ", _VERSION, kind, len(self.lengths), len(self.documents)))
            for column in (self.lengths, offsets, self.documents):
                file.write(_little(column))
            file.flush()
            os.fsync(file.fileno())


def _little(values: array[int]) -> bytes:
    if sys.byteorder == "big":
        values = values[:]
        values.byteswap()
    return values.tobytes()
