"""The history as a table, one line a case, and the plot of one case."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from statistics import median

from primus_bench.history.store import Point

__all__ = ["Series", "plot", "series", "table"]

Series = list[Point]
_BARS = "▁▂▃▄▅▆▇█"
_NEWEST = 30
_SHORTEST_S, _SHORT_S = 10.0, 3600.0
"""The least span of an axis of times, and that below which its labels have seconds."""
_WIDE = 70
"""Columns that a plot needs for three labels."""


def series(points: Iterable[Point], benchmark: str = "", case: str = "") -> list[Series]:
    """The points of each case on each device, those with a value; filtered by parts of the names."""
    found: dict[tuple[str, ...], Series] = {}
    for point in points:
        if point.value is not None and benchmark in ("", point.benchmark) and case in point.name:
            key = (point.benchmark, point.device, point.name, point.parameters, point.unit)
            found.setdefault(key, []).append(point)
    return list(found.values())


def table(found: Sequence[Series]) -> str:
    """The newest value of each, beside the median of those before."""
    from tabulate import tabulate

    headers = ["benchmark", "case", "device", "runs", "newest", "unit", "against the median before", "history"]
    return str(tabulate([_row(one) for one in found], headers=headers, disable_numparse=True))


def _row(points: Series) -> tuple[str, ...]:
    newest, before = points[-1], _values(points[:-1])
    change = f"{_values(points)[-1] / median(before) - 1:+.1%}" if before and median(before) else "-"
    values = _values(points)[-_NEWEST:]
    return (newest.benchmark, newest.name, newest.device, str(len(points)), f"{values[-1]:.4g}", newest.unit, change,
            _bars(values))  # fmt: skip


def _values(points: Series) -> list[float]:
    return [point.value for point in points if point.value is not None]


def _bars(values: Sequence[float]) -> str:
    low, high = min(values), max(values)
    scale = (len(_BARS) - 1) / (high - low) if high > low else 0
    return "".join(_BARS[round((value - low) * scale)] for value in values)


def plot(points: Series, width: int, *, colour: bool) -> str:
    """One case over time."""
    title = f"{points[0].benchmark}: {points[0].name}, {points[0].device}"
    if len(points) < 2:
        return f"{title}: one result, {_values(points)[-1]:.4g} {points[0].unit}; a plot needs two"
    import plotext

    plotext.clear_figure()
    low, high = _axis([point.time for point in points])
    # seconds since the first: as dates, plotext draws a span of seconds as a century
    plotext.plot([point.time - low for point in points], _values(points), marker="braille")
    plotext.xlim(0, high - low)
    ticks = [low, high] if width < _WIDE else [low, (low + high) / 2, high]
    plotext.xticks([tick - low for tick in ticks], [_clock(tick, high - low) for tick in ticks])
    plotext.title(title)
    plotext.ylabel(points[0].unit)
    plotext.plotsize(width, 20)
    text = str(plotext.build())
    return text if colour else str(plotext.uncolorize(text))


def _axis(times: Sequence[float]) -> tuple[float, float]:
    """Its ends: all times, and some seconds around those that are closer."""
    low, high = min(times), max(times)
    around = max(0.0, _SHORTEST_S - (high - low)) / 2
    return low - around, high + around


def _clock(seconds: float, span: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S" if span < _SHORT_S else "%Y-%m-%d %H:%M", time.localtime(seconds))
