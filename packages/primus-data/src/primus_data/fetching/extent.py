"""Which rows of which files a slice consists of."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import IO, NamedTuple

from primus_data.fetching import rows
from primus_data.fetching.slices import Slice
from primus_data.fetching.sources import Source

__all__ = ["Bounds", "Piece", "bounds", "pieces"]

Open = Callable[[Source], IO[bytes]]


class Bounds(NamedTuple):
    """Rows of a split, by their numbers in it."""

    start: int
    stop: int | None
    """None: to its end."""

    @property
    def is_all(self) -> bool:
        """Whether no row is left out."""
        return not self.start and self.stop is None


class Piece(NamedTuple):
    """Rows of a file."""

    number: int
    """Of the file."""
    first: int
    """The number, in the split, of the file's first row; 0 where all rows of all files are taken."""
    start: int
    stop: int | None
    """None: to its end."""
    is_whole: bool


def bounds(
    part: Slice, num_samples: int, sources: Sequence[Source], open_: Open, workers: int, told: Callable[[str], None]
) -> tuple[Bounds, dict[int, int]]:
    """The rows that are meant, and the rows of each file that had to be counted for it. `told` hears what goes on."""
    counts: dict[int, int] = {}
    total = None
    if part.needs_total:
        counts = dict(_counted(range(len(sources)), sources, open_, workers, told))
        total = sum(counts.values())
    start, stop = part.rows(total)
    if num_samples:
        stop = start + num_samples if stop is None else min(stop, start + num_samples)
    if total is None and stop is not None:
        counts = _counted_until(stop, sources, open_, workers, told)
    if len(counts) == len(sources):  # all are known: nothing lies behind the last row
        stop = min(sum(counts.values()) if stop is None else stop, sum(counts.values()))
        is_all = not start and stop == sum(counts.values())
        return Bounds(start, None if is_all else max(start, stop)), counts
    return Bounds(start, stop if stop is None else max(start, stop)), counts


def _counted_until(
    stop: int, sources: Sequence[Source], open_: Open, workers: int, told: Callable[[str], None]
) -> dict[int, int]:
    """The rows of the first files, as far as they are in need, and as they are known without reading all of a file."""
    counts: dict[int, int] = {}
    while len(counts) < len(sources) and sum(counts.values()) < stop:
        first = len(counts)  # as many more as were in need: mostly, the first file suffices
        some = range(first, min(first + min(max(first, 1), workers), len(sources)))
        if any(sources[number].format.kind == "jsonl" for number in some):
            break
        counts |= dict(_counted(some, sources, open_, workers, told))
    return counts


def _counted(
    numbers: Sequence[int], sources: Sequence[Source], open_: Open, workers: int, told: Callable[[str], None]
) -> Iterator[tuple[int, int]]:
    def one(number: int) -> tuple[int, int]:
        source = sources[number]
        with closing(open_(source)) as file:
            is_parquet = source.format.kind == "parquet"
            data = file if is_parquet or not isinstance(file, io.RawIOBase) else io.BufferedReader(file, 1 << 23)
            return number, rows.count(data, source.path, source.format, source.size)

    pool = ThreadPoolExecutor(workers, "count")
    try:
        for done, coming in enumerate([pool.submit(one, number) for number in numbers], 1):
            yield coming.result()
            told(f"counting rows: {done:,} of {len(sources):,} files")
    finally:  # whoever closes the client ends those that are in a pause between two tries
        pool.shutdown(wait=False, cancel_futures=True)


def pieces(
    sources: Sequence[Source], counts: Mapping[int, int], wanted: Bounds, begin: tuple[int, int] = (0, 0)
) -> Iterator[Piece]:
    """The rows to read, file by file, from the file `begin` on, which is the first one's number and its first row's.

    Where the rows of a file are not known, `counts` has them when the next piece is asked for.
    """
    number, at = begin
    for source in sources[number:]:
        if wanted.is_all:
            yield Piece(number, 0, 0, None, is_whole=True)
        elif wanted.stop is not None and at >= wanted.stop:
            return
        else:
            known = counts.get(number)
            if known is None or at + known > wanted.start:
                yield _piece(source, number, at, known, wanted)
            at += counts[number]
        number += 1


def _piece(source: Source, number: int, at: int, known: int | None, wanted: Bounds) -> Piece:
    start = max(wanted.start - at, 0)
    stop = None if wanted.stop is None else wanted.stop - at
    if known is None:
        return Piece(number, at, start, stop, is_whole=not source.has_ranges or stop is None)
    end = known if stop is None else min(known, stop)
    return Piece(number, at, start, end, is_whole=not source.has_ranges or 2 * (end - start) >= known)
