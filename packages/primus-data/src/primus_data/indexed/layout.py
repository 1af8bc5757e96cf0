r"""The bytes of `PREFIX.bin` and `PREFIX.idx`, little-endian. Needs no numpy, so that plans can check files.

    .bin  token ids, one after the other, without a header
    .idx  magic MMIDIDX\0\0, version <Q, type of a token <B, S <Q sequences, B <Q bounds of documents,
          S × int32 lengths in tokens, S × int64 offsets in bytes, B × int64 documents as numbers of sequences,
          and for multimodal data S × int8 modes

An empty document is a bound without a sequence. Source: `megatron/core/datasets/indexed_dataset.py` of Megatron-LM.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
from typing import NamedTuple

__all__ = ["HEAD", "INT32", "MAGIC", "TYPES", "UINT16", "VERSION", "Layout", "fault", "read", "regular", "type_for"]

MAGIC, VERSION = b"MMIDIDX\x00\x00", 1
HEAD = struct.Struct("<9sQBQQ")
UINT16, INT32 = 8, 4
TYPES = {1: "u1", 2: "i1", 3: "i2", INT32: "i4", 5: "i8", 6: "f8", 7: "f4", UINT16: "u2"}
"""What a token is, by its code, in numpy's words."""
_SMALL_VOCABULARY = 65500
"""Below this, Megatron keeps ids in 16 bits (`DType.optimal_dtype`)."""


class Layout(NamedTuple):
    """What the head of an index says."""

    code: int
    sequences: int
    bounds: int
    """Documents, and one more."""

    @property
    def type(self) -> str:
        """Of a token, as numpy has it."""
        return f"<{TYPES[self.code]}"

    @property
    def width(self) -> int:
        """Bytes of a token."""
        return int(TYPES[self.code][1])

    @property
    def lengths_at(self) -> int:
        """Where the lengths begin."""
        return HEAD.size

    @property
    def offsets_at(self) -> int:
        """Where the offsets begin."""
        return self.lengths_at + 4 * self.sequences

    @property
    def documents_at(self) -> int:
        """Where the bounds of documents begin."""
        return self.offsets_at + 8 * self.sequences

    @property
    def size(self) -> int:
        """Bytes of an index without modes."""
        return self.documents_at + 8 * self.bounds

    @property
    def head(self) -> bytes:
        """The first bytes of the index."""
        return HEAD.pack(MAGIC, VERSION, self.code, self.sequences, self.bounds)


def type_for(vocab_size: int) -> int:
    """The code of the type that holds the ids of a vocabulary, as Megatron chooses it."""
    return UINT16 if vocab_size < _SMALL_VOCABULARY else INT32


def regular(path: str, flags: int) -> int:
    """For `open(..., opener=regular)`: a FIFO or a device is refused, and not waited for.

    Raises:
        OSError: it is one, or cannot be opened.
    """
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        number = errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL
        raise OSError(number, "it is a folder" if number == errno.EISDIR else "it is not a regular file", path)
    return descriptor


def read(prefix: str) -> Layout | str:
    """The layout of `<prefix>.idx`, or why it is none.

    Raises:
        OSError: it cannot be read.
    """
    index = f"{prefix}.idx"
    with open(index, "rb", opener=regular) as file:
        head = file.read(HEAD.size)
    if len(head) < HEAD.size:
        return f"{index} has {len(head)} bytes: it was cut off"
    magic, version, code, sequences, bounds = HEAD.unpack(head)
    if magic != MAGIC or version != VERSION or code not in TYPES:
        return f"{index} is not an index of Megatron"
    found = Layout(code, sequences, bounds)
    if (size := os.path.getsize(index)) < found.size:
        return f"{index} has {size} bytes of {found.size}: it was cut off"
    return found


def fault(prefix: str) -> str:
    """Why `<prefix>.bin` and `<prefix>.idx` cannot be trained on, from their sizes and ends; empty if they can.

    Raises:
        OSError: they cannot be read.
    """
    found = read(prefix)
    if isinstance(found, str):
        return found
    if not found.sequences or found.bounds < 2:
        return f"{prefix}.idx lists {found.sequences} sequences in {max(found.bounds - 1, 0)} documents: it is empty"
    with open(f"{prefix}.idx", "rb") as file:
        file.seek(found.offsets_at - 4)
        (length,) = struct.unpack("<i", file.read(4))
        file.seek(found.documents_at - 8)
        (offset,) = struct.unpack("<q", file.read(8))
    whole, size = offset + length * found.width, os.path.getsize(f"{prefix}.bin")
    return f"{prefix}.bin has {size} bytes, but its index lists {whole}: it was cut off" if size < whole else ""
