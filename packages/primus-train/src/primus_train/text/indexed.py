"""Megatron's data files: token ids in `.bin`, and where each document begins in `.idx`; written as a stream, checked.

Memory holds twelve bytes a document, never the tokens.
"""

from __future__ import annotations

import os
import struct
import sys
from array import array
from collections.abc import Sequence
from types import TracebackType
from typing import Self

__all__ = ["IndexedWriter", "fault", "largest"]

_MAGIC, _VERSION = b"MMIDIDX\x00\x00", 1
_UINT16, _INT32 = 8, 4
_WIDTHS = {1: 1, 2: 1, 3: 2, _INT32: 4, 5: 8, 6: 8, 7: 4, _UINT16: 2}
"""Bytes of a token by the code of its type."""
_CODES = {1: "B", 2: "b", 3: "h", _INT32: "i", 5: "q", _UINT16: "H"}
"""The same for `array`, where tokens are whole numbers."""
_HEAD = struct.Struct("<9sQBQQ")
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
            file.write(_HEAD.pack(_MAGIC, _VERSION, kind, len(self.lengths), len(self.documents)))
            for column in (self.lengths, offsets, self.documents):
                file.write(_little(column))
            file.flush()
            os.fsync(file.fileno())


def fault(prefix: str) -> str:
    """Why `<prefix>.bin` and `<prefix>.idx` cannot be trained on, from their sizes and ends; empty if they can.

    Raises:
        OSError: they cannot be read.
    """
    index = f"{prefix}.idx"
    with open(index, "rb") as file:
        head = file.read(_HEAD.size)
        if len(head) < _HEAD.size:
            return f"{index} has {len(head)} bytes: it was cut off"
        magic, version, kind, sequences, bounds = _HEAD.unpack(head)
        if magic != _MAGIC or version != _VERSION or kind not in _WIDTHS:
            return f"{index} is no index of Megatron's"
        if not sequences or bounds < 2:
            return f"{index} tells of {sequences} sequences in {max(bounds - 1, 0)} documents: there is nothing in it"
        whole = _HEAD.size + sequences * 12 + bounds * 8
        if (size := os.path.getsize(index)) < whole:
            return f"{index} has {size} bytes of {whole}: it was cut off"
        file.seek(_HEAD.size + sequences * 4 - 4)
        (length,) = struct.unpack("<i", file.read(4))
        file.seek(_HEAD.size + sequences * 12 - 8)
        (offset,) = struct.unpack("<q", file.read(8))
    whole, size = offset + length * _WIDTHS[kind], os.path.getsize(f"{prefix}.bin")
    return f"{prefix}.bin has {size} bytes, and its index tells of {whole}: it was cut off" if size < whole else ""


def largest(prefix: str, count: int) -> int:
    """The largest of the first `count` tokens; -1 where there are none.

    Raises:
        OSError: the files cannot be read.
    """
    with open(f"{prefix}.idx", "rb") as file:
        kind = _HEAD.unpack(file.read(_HEAD.size))[2]
    code = _CODES.get(kind)
    if not code:
        return -1  # floating point
    tokens, size = array(code), _WIDTHS[kind]
    with open(f"{prefix}.bin", "rb") as file:
        data = file.read(count * size)
    tokens.frombytes(data[: len(data) // size * size])
    if sys.byteorder == "big":
        tokens.byteswap()
    return max(tokens, default=-1)


def _little(values: array[int]) -> bytes:
    if sys.byteorder == "big":
        values = values[:]
        values.byteswap()
    return values.tobytes()
