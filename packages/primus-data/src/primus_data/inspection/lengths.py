"""How long documents are: quantiles and a histogram in bounded memory, exact or from a sample."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from primus_data.indexed.streams import Streams, damaged

__all__ = ["Bar", "Lengths", "measure"]

_COUNTED = 1 << 20
"""Lengths below this are counted one by one; the data has few documents that are longer."""
_STRETCHES, _STRETCH = 256, 1024
"""A sample: so many places, evenly over the data, with so many documents in a row."""
EXACT_UP_TO = 1 << 22
"""Documents that are counted in well under a second."""


class Bar(NamedTuple):
    """Documents of about one length."""

    shortest: int
    longest: int
    documents: int


class Lengths(NamedTuple):
    """Of documents, in tokens."""

    documents: int
    """So many were looked at."""
    is_sample: bool
    empty: int
    shortest: int
    median: int
    mean: float
    p99: int
    longest: int
    histogram: tuple[Bar, ...]
    """Each bar ends at twice the length of the one before. Empty documents are in none."""


class _Counts:
    """How often each length was seen."""

    def __init__(self) -> None:
        self.small = np.zeros(_COUNTED, np.int64)
        self.large: list[NDArray[Any]] = []
        self.tokens = 0

    def add(self, lengths: NDArray[Any]) -> None:
        is_small = lengths < _COUNTED
        found = np.bincount(lengths[is_small])
        self.small[: len(found)] += found
        if not is_small.all():
            self.large.append(lengths[~is_small])
        self.tokens += int(lengths.sum(dtype=np.int64))

    def table(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """Each length that was seen, ascending, and how often."""
        values = np.flatnonzero(self.small)
        large, often = np.unique(np.concatenate([np.empty(0, np.int64), *self.large]), return_counts=True)
        return np.concatenate([values, large]), np.concatenate([self.small[values], often])


def measure(streams: Streams, *, exact: bool, advance: Callable[[int], object] = lambda _: None) -> Lengths:
    """The lengths of all documents, or of a sample of them where there are many. `advance` is told how many were seen.

    Raises:
        MachineError: the index contradicts itself.
    """
    documents = max(streams.layout.bounds - 1, 0)
    is_sample = not exact and documents > EXACT_UP_TO
    counts = _Counts()
    for lengths in _sampled(streams, documents) if is_sample else _all(streams):
        if counts.tokens > streams.total and not is_sample:
            raise damaged(streams.prefix, "its documents have more tokens than the data")
        counts.add(lengths)
        advance(len(lengths))
    return _described(counts, is_sample)


def _all(streams: Streams) -> Iterator[NDArray[Any]]:
    for _, bounds in streams.document_bounds():
        yield _lengths(streams, bounds)


def _sampled(streams: Streams, documents: int) -> Iterator[NDArray[Any]]:
    for number in range(_STRETCHES):
        first = (2 * number + 1) * documents // (2 * _STRETCHES) - _STRETCH // 2
        yield _lengths(streams, streams.at(streams.layout.documents_at + 8 * first, _STRETCH + 1))


def _lengths(streams: Streams, bounds: NDArray[Any]) -> NDArray[Any]:
    found = np.diff(streams.positions(bounds))
    if len(found) and int(found.min()) < 0:
        raise damaged(streams.prefix, "the bounds of its documents, or the offsets of its sequences, do not ascend")
    return found


def _described(counts: _Counts, is_sample: bool) -> Lengths:
    values, often = counts.table()
    documents = int(often.sum())
    if not documents:
        return Lengths(0, is_sample, 0, 0, 0, 0.0, 0, 0, ())
    up_to = np.cumsum(often)
    return Lengths(
        documents=documents,
        is_sample=is_sample,
        empty=int(often[0]) if not values[0] else 0,
        shortest=int(values[0]),
        median=_quantile(values, up_to, 50),
        mean=counts.tokens / documents,
        p99=_quantile(values, up_to, 99),
        longest=int(values[-1]),
        histogram=tuple(_bars(values, often)),
    )


def _quantile(values: NDArray[Any], up_to: NDArray[Any], percent: int) -> int:
    """The smallest length that `percent` of the documents do not exceed."""
    return int(values[np.searchsorted(up_to, -(-int(up_to[-1]) * percent // 100))])


def _bars(values: NDArray[Any], often: NDArray[Any]) -> Iterator[Bar]:
    filled = values > 0
    values, often = values[filled], often[filled]
    if not len(values):
        return
    for power in range(int(values[0]).bit_length() - 1, int(values[-1]).bit_length()):
        first, end = np.searchsorted(values, [1 << power, 2 << power])
        yield Bar(1 << power, (2 << power) - 1, int(often[first:end].sum()))
