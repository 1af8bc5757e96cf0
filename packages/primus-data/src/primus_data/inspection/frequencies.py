"""Which tokens are most frequent, and which id is the largest: in all of the data, or in a sample of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from primus_data.indexed.streams import Streams

__all__ = ["Frequencies", "count"]

_STRETCHES, _STRETCH = 64, 1 << 14
_COUNTED = 1 << 20
"""Ids below this are counted: no vocabulary is larger."""


class Frequencies(NamedTuple):
    """Of tokens."""

    tokens: int
    """So many were looked at."""
    is_sample: bool
    largest: int
    smallest: int
    distinct: int
    top: tuple[tuple[int, int], ...]
    """Ids, and how often each was seen."""


def count(streams: Streams, *, exact: bool, most: int) -> Frequencies | None:
    """None: there are no tokens, or they are no whole numbers.

    Raises:
        MachineError: the data cannot be read.
    """
    if not streams.total or streams.layout.type[1] == "f":
        return None
    is_sample = not exact and streams.total > _STRETCHES * _STRETCH
    counts, tokens, largest, smallest = np.zeros(_COUNTED, np.int64), 0, -(1 << 63), 1 << 63
    for block in _sampled(streams) if is_sample else streams.tokens():
        largest, smallest = max(largest, int(block.max())), min(smallest, int(block.min()))
        counts += np.bincount(block[(block >= 0) & (block < _COUNTED)], minlength=_COUNTED)
        tokens += len(block)
    order = np.argsort(-counts, kind="stable")[:most]
    top = tuple((int(token), int(counts[token])) for token in order if counts[token])
    return Frequencies(tokens, is_sample, largest, smallest, int(np.count_nonzero(counts)), top)


def _sampled(streams: Streams) -> Iterator[NDArray[Any]]:
    with open(f"{streams.prefix}.bin", "rb", buffering=0) as file:
        for number in range(_STRETCHES):
            first = (2 * number + 1) * streams.total // (2 * _STRETCHES) - _STRETCH // 2
            file.seek(first * streams.layout.width)
            yield np.fromfile(file, streams.layout.type, _STRETCH)
