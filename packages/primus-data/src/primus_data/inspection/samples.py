"""Documents as a person reads them: their first tokens, decoded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from primus_data.indexed.streams import Streams, damaged

__all__ = ["Sample", "read", "spread"]

Decode = Callable[[Sequence[int]], str]


class Sample(NamedTuple):
    """The beginning of a document."""

    document: int
    tokens: int
    """All that it has."""
    ids: tuple[Any, ...]
    """The first of them."""
    text: str | None
    """None: no tokenizer is named."""


def spread(documents: int, count: int) -> list[int]:
    """So many numbers of documents, evenly over all: the same ones each time."""
    count = min(documents, count)
    return [(2 * index + 1) * documents // (2 * count) for index in range(count)]


def read(streams: Streams, numbers: Sequence[int], most: int, decode: Decode | None) -> Iterator[Sample]:
    """Each of these documents, which must be there: `most` tokens of it.

    Raises:
        MachineError: the index contradicts itself.
    """
    for number in numbers:
        start, end = _place(streams, number)
        ids = _tokens(streams, start, min(end - start, most))
        yield Sample(number, end - start, ids, decode(ids) if decode else None)


def _place(streams: Streams, number: int) -> tuple[int, int]:
    start, end = map(int, streams.positions(streams.at(streams.layout.documents_at + 8 * number, 2)))
    if end < start:
        raise damaged(streams.prefix, f"document {number} ends before it begins")
    return start, end


def _tokens(streams: Streams, start: int, count: int) -> tuple[Any, ...]:
    width = streams.layout.width
    return tuple(np.fromfile(f"{streams.prefix}.bin", streams.layout.type, count, offset=start * width).tolist())
