"""How much disk space a fetch needs: an estimate, compared with what is free before anything is written."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import IO, NamedTuple

from primus_data.fetching import lines, progress, rows
from primus_data.fetching.extent import Bounds
from primus_data.fetching.sources import Source
from primus_machine.errors import MachineError
from primus_machine.host import HostRoot

__all__ = ["Sample", "check", "estimate", "sample"]

_TEXT_PER_BYTE = {"gz": 3.5, "zst": 4.0}
"""Text in a byte of a compressed file, as English web text has it."""
_JSON_OVERHEAD = 0.05
"""Names of keys, and what JSON escapes."""
_SAMPLE_LINES = 100
_COMPRESSED = {"": 1.0, "gz": 0.35, "zst": 0.35}
"""A byte of text, compressed."""


class Sample(NamedTuple):
    """What one file tells of all of them."""

    text_per_byte: float
    text_per_row: float


def sample(source: Source, file: IO[bytes], columns: Sequence[str]) -> Sample:
    """Of a parquet file, what its end says; of another one, what its first lines do."""
    if source.format.kind == "parquet":
        groups = rows.sizes(file, source.path, columns)
        text = groups.text * (1 + _JSON_OVERHEAD)
        return Sample(text / max(source.size, 1), text / max(groups.rows, 1))
    ratio = _TEXT_PER_BYTE.get(source.format.compression, 1.0)
    if source.format.kind == "text":
        return Sample(ratio, source.size * ratio)
    found = list(islice(lines.split(file, source.format.compression, source.path, source.size), _SAMPLE_LINES))
    return Sample(ratio, sum(map(len, found)) / max(len(found), 1))


def estimate(sources: Sequence[Source], wanted: Bounds, found: Sample, compress: str) -> int:
    """Bytes of all shards."""
    text = sum(one.size for one in sources) * found.text_per_byte
    if wanted.stop is not None:
        text = min(text, (wanted.stop - wanted.start) * found.text_per_row)
    return int(text * _COMPRESSED[compress])


def check(folder: str, shards: int, downloads: int) -> None:
    """Say how much is needed; refuse if there is less.

    Raises:
        MachineError: the disk is too small.
    """
    space = HostRoot().space(folder)
    needs = f"about {_size(shards + downloads)} (estimate: {_size(shards)} of shards, {_size(downloads)} of downloads)"
    if space is None:
        return
    if shards + downloads > space[1]:
        raise MachineError(
            f"not enough disk space in '{folder}'",
            why=f"{needs} are needed, and {_size(space[1])} are free",
            fix="name another --output-dir, take less with --split or --num-samples, or use --compress zst",
        )
    progress.say("data_fetch_space", f"{needs} of disk space, {_size(space[1])} are free")


def _size(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:,.1f} TB"
