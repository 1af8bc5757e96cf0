"""The history as a table, one line a case, and the plot of one case."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

from primus_bench.history.store import Point
from primus_machine.files import plain_json
from primus_machine.text import printable

__all__ = ["Series", "names", "plot", "series", "table"]

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
    rows = [_row(points, name) for points, name in zip(found, names(found), strict=True)]
    return str(tabulate(rows, headers=headers, disable_numparse=True))


def names(found: Sequence[Series]) -> list[str]:
    """The cases by name; those with one name, with the parameters that differ."""
    alike: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for points in found:
        alike.setdefault(_key(points), []).append(_parameters(points))
    return [_named(points, alike[_key(points)]) for points in found]


def _key(points: Series) -> tuple[str, ...]:
    return points[0].benchmark, points[0].device, points[0].name, points[0].unit


def _parameters(points: Series) -> dict[str, Any]:
    found = plain_json.loads(points[0].parameters)
    return found if isinstance(found, dict) else {"parameters": found}


def _named(points: Series, others: Sequence[Mapping[str, Any]]) -> str:
    own = _parameters(points)
    keys = sorted({key for one in others for key in one})
    differ = [key for key in keys if len({json.dumps(one.get(key), sort_keys=True) for one in others}) > 1]
    shown = ", ".join(f"{key} {own.get(key, '-')}" for key in differ)
    return points[0].name + printable(f" ({shown})" if shown else "")


def _row(points: Series, name: str) -> tuple[str, ...]:
    newest, before = points[-1], _values(points[:-1])
    change = f"{_values(points)[-1] / median(before) - 1:+.1%}" if before and median(before) else "-"
    values = _values(points)[-_NEWEST:]
    return (newest.benchmark, name, newest.device, str(len(points)), f"{values[-1]:.4g}", newest.unit, change,
            _bars(values))  # fmt: skip


def _values(points: Series) -> list[float]:
    return [point.value for point in points if point.value is not None]


def _bars(values: Sequence[float]) -> str:
    low, high = min(values), max(values)
    scale = (len(_BARS) - 1) / (high - low) if high > low else 0
    return "".join(_BARS[round((value - low) * scale)] for value in values)


def plot(points: Series, name: str, width: int, *, colour: bool) -> str:
    """One case over time, under its name of `names`."""
    title = f"{points[0].benchmark}: {name}, {points[0].device}"
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
