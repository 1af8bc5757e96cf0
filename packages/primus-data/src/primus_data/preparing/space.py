"""Whether the disk has room for a preparation, before it begins."""

from __future__ import annotations

import os
from collections.abc import Sequence

from primus_core import get_logger
from primus_core.errors import MachineError
from primus_data.indexed.layout import TYPES, type_for
from primus_data.sources.files import File

__all__ = ["check"]

_EXPANDS = {"gzip": 3.0, "zstd": 3.5, "parquet": 2.5}
"""Bytes of text for each byte of a compressed file, about."""
_BYTES_OF_TOKEN = 4.0
"""Of English text, about."""
_COPIES = 2
"""The parts, and the output that they are joined to."""
_CERTAINLY = 4
"""An estimate is never so many times too high."""
_GB = 1e9


def check(files: Sequence[File], folder: str, vocab_size: int, keys: int, done: float) -> None:
    """Refuse a disk that is certainly too small, and warn of one that may be. `done`: the share that is prepared.

    Raises:
        MachineError: it is too small.
    """
    text = sum(file.size * _EXPANDS.get(file.kind, 1.0) for file in files)
    width = int(TYPES[type_for(vocab_size)][1])
    needed = text / _BYTES_OF_TOKEN * width * (_COPIES - done)
    disk = os.statvfs(folder)
    free = disk.f_bavail * disk.f_frsize
    what = f"'{folder}' has {free / _GB:.3g} GB of free space, and about {needed / _GB:.3g} GB are needed"
    if free * _CERTAINLY < needed:
        why = f"{len(files)} files with about {text / _GB:.3g} GB of text, as parts and as the joined output"
        raise MachineError(what, why=why, fix="free some space, or choose another --output-prefix")
    if free < needed:
        get_logger().warning("data_space", message=f"prepare: {what}: it may become full")
