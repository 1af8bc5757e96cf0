"""Fewer points for a chart, with all that one would see: of each stretch the lowest and the highest are kept."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import quantiles

__all__ = ["Point", "apart", "distributions", "thinned"]

Point = tuple[float, float | None]
"""None: the number is not finite, and the line has a gap."""
_DIGITS = 6
_BINS = (8, 40)
"""Of a distribution, so many at least and at most; between them, by Rice's rule."""
_TAIL = 200
"""One value in so many is beyond the bins, on either side."""


def thinned(xs: Sequence[float], ys: Sequence[float], most: int) -> list[Point]:
    """At most `most` points and a few: those of the first and last line, of each stretch of lines between the lowest,
    the highest and the first that is not finite, in their order.
    """
    count = len(xs)
    if count <= most:
        return [_point(xs[index], ys[index]) for index in range(count)]
    stretches = max(most // 2, 1)
    borders = [round(number * count / stretches) for number in range(stretches + 1)]
    kept = {0, count - 1}
    for first, end in pairwise(borders):
        kept.update(_extremes(ys, first, end))
    return [_point(xs[index], ys[index]) for index in sorted(kept)]


def _extremes(ys: Sequence[float], first: int, end: int) -> Iterator[int]:
    finite = [index for index in range(first, end) if not math.isnan(ys[index])]
    if finite:
        yield min(finite, key=ys.__getitem__)
        yield max(finite, key=ys.__getitem__)
    if len(finite) < end - first:
        yield next(index for index in range(first, end) if math.isnan(ys[index]))


def _point(x: float, y: float) -> Point:
    return x, None if math.isnan(y) else float(f"{y:.{_DIGITS}g}")


def apart(points: Sequence[Point]) -> list[Point]:
    """The same, with a gap where a run was started again: it goes back to its checkpoint, and no line leads there."""
    found = list(points[:1])
    for before, point in pairwise(points):
        found += [(point[0], None)] if point[0] <= before[0] else []
        found.append(point)
    return found


def distributions(groups: Sequence[Sequence[float]]) -> list[list[Point]]:
    """Of each group the share of its values in each bin, at the middle of the bin. All groups have the same bins."""
    every = [value for one in groups for value in one]
    cuts = quantiles(every, n=_TAIL, method="inclusive") if len(every) > 1 else every * 2
    low, high = cuts[0], cuts[-1]
    bins = min(max(round(2 * max(map(len, groups)) ** (1 / 3)), _BINS[0]), _BINS[1])
    width = (high - low) / bins or max(high, 1e-9) / bins
    return [_histogram(one, low, width, bins) for one in groups]


def _histogram(values: Sequence[float], low: float, width: float, bins: int) -> list[Point]:
    """The middle of each bin and its share; what lies beyond is in the outermost ones."""
    counts = [0] * (bins + 1)
    for value in values:
        counts[min(max(math.floor((value - low) / width), 0), bins)] += 1
    return [(float(f"{low + (index + 0.5) * width:.6g}"), count / len(values)) for index, count in enumerate(counts)]
