"""How fast a folder's disk writes and reads: a file without a name, which is gone whatever happens to the process."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from typing import NamedTuple

__all__ = ["Speed", "measure"]

SIZE = 256 << 20
LIMIT_S = 10.0
"""For each direction: a slow disk is not kept busy for long."""
_BLOCK = 16 << 20
_STEP = 4096
"""Each block begins so much later in the random data: none is like another, for disks that compress or deduplicate."""


class Speed(NamedTuple):
    """MB/s (10^6 bytes)."""

    written: float
    """Up to the disk: each block is flushed."""
    read: float
    """From the disk, where the file system lets go of what it has cached."""


def measure(folder: str, size: int = SIZE, limit_s: float = LIMIT_S) -> Speed:
    """Write and read `size` bytes in `folder`, or less where it would take longer than `limit_s` seconds each.

    Raises:
        OSError: it cannot be written there.
    """
    blocks = size // _BLOCK
    data = memoryview(os.urandom(_BLOCK + blocks * _STEP))
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        descriptor = file.fileno()

        def write(block: int) -> int:
            done = os.write(descriptor, data[block * _STEP : block * _STEP + _BLOCK])
            os.fdatasync(descriptor)
            return done

        written, write_s = _lasting(write, blocks, limit_s)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.lseek(descriptor, 0, os.SEEK_SET)
        space = bytearray(_BLOCK)
        read, read_s = _lasting(lambda _: os.readv(descriptor, [space]), -(-written // _BLOCK), limit_s)
    return Speed(written / write_s / 1e6, read / read_s / 1e6)


def _lasting(move: Callable[[int], int], blocks: int, limit_s: float) -> tuple[int, float]:
    """Bytes that were moved, and in how many seconds."""
    began = time.monotonic()
    moved = 0
    for block in range(blocks):
        moved += move(block)
        if time.monotonic() - began > limit_s:
            break
    return moved, time.monotonic() - began
