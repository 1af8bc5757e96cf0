"""A chart as the charting library (ECharts) takes it: plain data, the same for every theme and width."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from primus_page.series import Point

__all__ = ["Chart", "Line", "bars", "columns", "lines"]


@dataclass(frozen=True, slots=True)
class Chart:
    """One chart. `page.js` adds what a theme and a width want."""

    name: str
    title: str
    option: Mapping[str, Any]
    is_wide: bool = False
    """It takes the whole width of the page."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a chart."""

    name: str
    points: Sequence[Point]
    dashed: bool = False
    steps: bool = False
    """It changes at its points only."""
    points_only: bool = False
    """No line leads from one to the next."""


def lines(
    name: str,
    title: str,
    drawn: Sequence[Line],
    *,
    unit: str = "",
    x: str = "step",
    window: tuple[float, float] | None = None,
    percent: bool = False,
    logarithmic: str = "",
) -> Chart:
    """Lines over a number. `window`: a stretch of it that is marked. `logarithmic`: these axes, of `xy`."""
    series = [_line(line) for line in drawn]
    if window and series:
        series[0]["markArea"] = {"silent": True, "data": [[{"xAxis": window[0]}, {"xAxis": window[1]}]]}
    option = {
        "xAxis": {"type": _kind("x", logarithmic), "name": x, "min": "dataMin", "max": "dataMax"},
        "yAxis": {"type": _kind("y", logarithmic), "scale": True, "name": unit},
        "series": series,
        "tooltip": {"trigger": "axis"},
        "legend": {"show": len(series) > 1},
        "percent": percent,
    }
    return Chart(name, title, option)


def _kind(axis: str, logarithmic: str) -> str:
    return "log" if axis in logarithmic else "value"


def _line(line: Line) -> dict[str, Any]:
    width = 0 if line.points_only else 1.5
    return {
        "type": "line",
        "name": line.name,
        "data": line.points,
        "showSymbol": line.points_only or len(line.points) < 2,
        "lineStyle": {"width": width, "type": "dashed" if line.dashed else "solid"},
        **({"step": "middle"} if line.steps else {}),
    }


def bars(
    name: str,
    title: str,
    labels: Sequence[str],
    parts: Mapping[str, Sequence[float]],
    *,
    unit: str = "",
    percent: bool = False,
) -> Chart:
    """Horizontal bars, one a label, each stacked of parts."""
    option = {
        "xAxis": {"type": "value", "name": unit, **({"max": 1} if percent else {})},
        "yAxis": {"type": "category", "data": list(labels), "inverse": True},
        "series": _stacked(parts),
        "tooltip": {"trigger": "axis", "axisPointer": {"type": "shadow"}},
        "legend": {"show": len(parts) > 1},
        "percent": percent,
    }
    return Chart(name, title, option, is_wide=True)


def columns(
    name: str, title: str, labels: Sequence[str], parts: Mapping[str, Sequence[float]], *, unit: str = ""
) -> Chart:
    """Upright bars, one a label, each stacked of parts."""
    option = {
        "xAxis": {"type": "category", "data": list(labels)},
        "yAxis": {"type": "value", "name": unit},
        "series": _stacked(parts),
        "tooltip": {"trigger": "axis", "axisPointer": {"type": "shadow"}},
        "legend": {"show": len(parts) > 1},
        "percent": False,
    }
    return Chart(name, title, option)


def _stacked(parts: Mapping[str, Sequence[float]]) -> list[dict[str, Any]]:
    return [
        {"type": "bar", "stack": "all", "name": part, "data": [float(f"{value:.6g}") for value in values]}
        for part, values in parts.items()
    ]
