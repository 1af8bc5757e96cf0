"""The index against itself and against the data: by sizes and ends alone, or number by number."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from primus_data.indexed.layout import Layout
from primus_data.indexed.streams import Streams
from primus_data.verification.findings import Finding

__all__ = ["check_columns", "check_ends"]

_INT32_END = 1 << 31


def check_ends(prefix: str, layout: Layout) -> Iterator[Finding]:
    """The sizes of both files, and the first and last numbers of each column.

    Raises:
        OSError: a file cannot be read.
    """
    index, data = os.path.getsize(f"{prefix}.idx"), os.path.getsize(f"{prefix}.bin")
    if (surplus := index - layout.size) and surplus == layout.sequences:
        yield Finding("format", f"{prefix}.idx ends in {surplus:,} modes: it is an index of multimodal data")
    elif surplus:
        yield Finding("format", f"{prefix}.idx has {surplus:,} bytes more than its head announces")
    if not layout.bounds:
        yield Finding("index", f"{prefix}.idx has no document index")
        return
    if layout.sequences >= _INT32_END:
        yield Finding("format", f"{layout.sequences:,} sequences: Megatron counts sequences in 32 bits")
    with open(f"{prefix}.idx", "rb", buffering=0) as file:
        yield from _ends_of_bounds(file, layout)
        listed = _listed(file, layout) if layout.sequences else 0
    if data != listed:
        kind = "missing" if data < listed else "surplus"
        what = f"{prefix}.bin has {data:,} bytes, and its index lists {listed:,}: {abs(data - listed):,} are {kind}"
        yield Finding("data", what)


def _number(file: Any, at: int, kind: str) -> int:
    file.seek(at)
    return int(np.fromfile(file, kind, 1)[0])


def _ends_of_bounds(file: Any, layout: Layout) -> Iterator[Finding]:
    first = _number(file, layout.documents_at, "<i8")
    last = _number(file, layout.documents_at + 8 * (layout.bounds - 1), "<i8")
    if first:
        yield Finding("index", f"the first document begins with sequence {first:,}, not 0")
    if last != layout.sequences:
        yield Finding("index", f"the last document ends with sequence {last:,} of {layout.sequences:,}")


def _listed(file: Any, layout: Layout) -> int:
    """Bytes of data, by the last sequence."""
    length = _number(file, layout.offsets_at - 4, "<i4")
    return _number(file, layout.documents_at - 8, "<i8") + length * layout.width


def check_columns(streams: Streams) -> Iterator[Finding]:
    """Each length, offset and bound.

    Raises:
        MachineError: a file cannot be read.
    """
    yield from _check_sequences(streams)
    before, wrong = 0, _Wrong()
    for first, bounds in _numbered(streams.bounds()):
        previous = np.concatenate([[before], bounds[:-1]])
        wrong.note(np.flatnonzero(bounds < previous), first, bounds, previous)
        before = int(bounds[-1])
    if wrong.count:
        what = f"{wrong.count:,} documents begin before the one in front of them"
        yield Finding(
            "index", what, wrong.count, (f"document {wrong.at:,}: sequence {wrong.found:,} after {wrong.expected:,}",)
        )


def _check_sequences(streams: Streams) -> Iterator[Finding]:
    expected, width = 0, streams.layout.width
    negative, zero, moved = _Wrong(), _Wrong(), _Wrong()
    for (first, lengths), offsets in zip(_numbered(streams.lengths()), streams.offsets(), strict=True):
        sizes = lengths.astype("<i8") * width
        ends = np.cumsum(sizes) + expected
        negative.note(np.flatnonzero(lengths < 0), first, lengths, lengths)
        zero.note(np.flatnonzero(lengths == 0), first, lengths, lengths)
        moved.note(np.flatnonzero(offsets != ends - sizes), first, offsets, ends - sizes)
        expected = int(ends[-1])
    if negative.count:
        example = f"sequence {negative.at:,}: {negative.found:,} tokens"
        what = f"{negative.count:,} sequences have a negative length: more tokens than 32 bits count"
        yield Finding("index", what, negative.count, (example,))
    if zero.count:
        example = f"sequence {zero.at:,}"
        yield Finding("format", f"{zero.count:,} sequences have no tokens", zero.count, (example,))
    if moved.count:
        yield _moved(moved)


def _moved(moved: _Wrong) -> Finding:
    apart = moved.expected - moved.found
    why = ": they overflowed 32 bits" if apart and apart % (1 << 32) == 0 else ""
    what = f"{moved.count:,} sequences do not begin where the one in front of them ends{why}"
    example = f"sequence {moved.at:,}: byte {moved.found:,} instead of {moved.expected:,}"
    return Finding("index", what, moved.count, (example,))


def _numbered(blocks: Iterator[NDArray[Any]]) -> Iterator[tuple[int, NDArray[Any]]]:
    first = 0
    for block in blocks:
        yield first, block
        first += len(block)


class _Wrong:
    """How many numbers are wrong, and the first of them."""

    def __init__(self) -> None:
        self.count = self.at = self.found = self.expected = 0

    def note(self, places: NDArray[Any], first: int, found: NDArray[Any], expected: NDArray[Any]) -> None:
        """These places of a block are wrong; it begins with number `first`."""
        if len(places) and not self.count:
            place = int(places[0])
            self.at, self.found, self.expected = first + place, int(found[place]), int(expected[place])
        self.count += len(places)
