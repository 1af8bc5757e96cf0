"""The parts of an input: what is prepared, kept and shared between nodes as a whole. They depend on the input alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from primus_data.sources.files import File, Kind

__all__ = ["Part", "divide", "usual_size"]

_SMALLEST, _LARGEST, _MOST_PARTS = 32 << 20, 1 << 30, 2000
_MOST_TEXTS = 10_000
"""Files in a part."""


class Part(NamedTuple):
    """Some of the input, in a row."""

    kind: Kind
    first: int
    """The number of its first file."""
    files: int
    """How many; more than one only of texts."""
    start: int
    """Where it begins: in bytes of a plain file, in row groups of parquet."""
    end: int
    size: int
    """Bytes of input, about."""


def usual_size(total: int) -> int:
    """Bytes of a part of an input with so many: small enough to share, and not so small that there are too many."""
    return min(max(_SMALLEST, total // _MOST_PARTS), _LARGEST)


def divide(files: Sequence[File], size: int) -> Iterator[Part]:
    """The parts, in the order of their documents.

    Raises:
        PrimusError: a parquet file cannot be read.
    """
    for kind, group in groupby(range(len(files)), key=lambda number: files[number].kind):
        numbers = list(group)
        if kind == "text":
            yield from _texts(files, numbers, size)
            continue
        for number in numbers:
            yield from _of_file(files[number], number, size)


def _of_file(file: File, number: int, size: int) -> Iterator[Part]:
    if file.kind == "lines":
        for start in range(0, file.size, size):
            end = min(start + size, file.size)
            yield Part(file.kind, number, 1, start, end, end - start)
    elif file.kind == "parquet":
        from primus_data.sources import parquet

        for start, end, count in parquet.divide(file, size):
            yield Part(file.kind, number, 1, start, end, count)
    elif file.size:
        yield Part(file.kind, number, 1, 0, file.size, file.size)


def _texts(files: Sequence[File], numbers: Sequence[int], size: int) -> Iterator[Part]:
    first, total = numbers[0], 0
    for number in numbers:
        total += files[number].size
        if total >= size or number - first >= _MOST_TEXTS or number == numbers[-1]:
            yield Part("text", first, number + 1 - first, 0, 0, total)
            first, total = number + 1, 0
