"""The charts of a document, chosen from its data alone: benchmarks of other packages get them, too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean, median
from typing import Any, NamedTuple

from primus_bench.report.document import Case, Document
from primus_page.chart import Chart, Line, bars, columns, lines
from primus_page.series import distributions

__all__ = ["charts"]

_FEWEST_POINTS = 3
"""Of each line of a sweep; with less, bars show more."""
_MOST_LINES = 12
_MOST_BARS = 60
_FEWEST_SAMPLES = 8
_WIDE = 8
"""Beyond this ratio of the largest to the smallest, an axis is logarithmic."""
_LATE = 2
"""So many times the median; few later iterations would else leave one bin to all others."""
_OF_RANKS = "_of_ranks"

Value = Any


class _Sweep(NamedTuple):
    """One parameter that grows, and a line of cases for each choice of the others."""

    parameter: str
    series: Mapping[str, Sequence[Case]]


def charts(found: Document) -> tuple[Chart, ...]:
    """All that there are data for."""
    return (*_values(found), *_roofline(found.cases), *_latencies(found.cases), *_ranks(found))


def _values(found: Document) -> Iterator[Chart]:
    """What is compared, one chart for each unit: as curves where a size grows, else as bars."""
    for number, unit in enumerate(dict.fromkeys(one.unit for one in found.cases if one.value is not None)):
        own = [one for one in found.cases if one.unit == unit and one.value is not None]
        sweep = _sweep(own)
        if sweep:
            yield _curves(f"values-{number}", unit, sweep)
        else:
            shown = own[:_MOST_BARS]
            title = f"{unit} of each case" + f", the first {_MOST_BARS} of {len(own)}" * (len(own) > _MOST_BARS)
            yield bars(f"values-{number}", title, [one.name for one in shown],
                       {unit: [one.value or 0.0 for one in shown]}, unit=unit)  # fmt: skip


def _curves(name: str, unit: str, sweep: _Sweep) -> Chart:
    drawn, xs = [], []
    for label, cases in sweep.series.items():
        points = sorted((float(one.parameters[sweep.parameter]), one.value) for one in cases)
        xs += [x for x, _ in points]
        drawn.append(Line(label or unit, points))
    wide = min(xs) > 0 and max(xs) >= _WIDE * min(xs)
    return lines(name, f"{unit} by {_words(sweep.parameter)}", drawn, unit=unit, x=_words(sweep.parameter),
                 logarithmic="x" * wide)  # fmt: skip


def _words(name: str) -> str:
    return name.replace("_", " ")


def _sweep(cases: Sequence[Case]) -> _Sweep | None:
    """The parameter with most values, if every line over it has enough points."""
    varying = [name for name in (cases[0].parameters if cases else ()) if len(_distinct(cases, name)) > 1]
    numbers = [name for name in varying if all(_is_number(one.parameters.get(name)) for one in cases)]
    for name in sorted(numbers, key=lambda one: -len(_distinct(cases, one))):
        series = _series(cases, name, [one for one in varying if one != name])
        fewest = min(len({one.parameters[name] for one in own}) for own in series.values())
        if fewest >= _FEWEST_POINTS and len(series) <= _MOST_LINES:
            return _Sweep(name, series)
    return None


def _distinct(cases: Sequence[Case], name: str) -> set[str]:
    return {str(one.parameters.get(name)) for one in cases}


def _is_number(value: Value) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _series(cases: Sequence[Case], x: str, others: Sequence[str]) -> dict[str, list[Case]]:
    """The cases by those parameters that `x` and the ones before them do not determine."""
    key: list[str] = []
    for name in sorted(others, key=lambda one: len(_distinct(cases, one))):
        if not _determined(cases, [x, *key], name):
            key.append(name)
    found: dict[str, list[Case]] = {}
    for one in cases:
        found.setdefault(", ".join(_named(name, one.parameters.get(name)) for name in key), []).append(one)
    return found


def _determined(cases: Sequence[Case], by: Sequence[str], name: str) -> bool:
    pairs = {(*(str(one.parameters.get(part)) for part in by), str(one.parameters.get(name))) for one in cases}
    return len(pairs) == len({pair[:-1] for pair in pairs})


def _named(name: str, value: Value) -> str:
    return value if isinstance(value, str) else f"{_words(name)} {value}"


def _roofline(cases: Sequence[Case]) -> Iterator[Chart]:
    """The cases below the limits of the device, where both are known: one chart for each peak."""
    known = [one for one in cases if one.value and one.derived.get("ridge_flop_per_byte") and _peak(one)]
    peaks: dict[str, list[Case]] = {}
    for one in known:
        peaks.setdefault(f"{_peak(one):.4g}", []).append(one)
    for number, own in enumerate(peaks.values()):
        xs = [one.derived["flop_per_byte"] for one in own]
        ridge, peak = own[0].derived["ridge_flop_per_byte"], _peak(own[0])
        low, high = min(*xs, ridge) / 2, max(*xs, ridge) * 2
        limit = [(low, low * peak / ridge), (ridge, peak), (high, peak)]
        roof = Line("limit of memory and compute", limit, dashed=True)
        engines = dict.fromkeys(str(one.parameters.get("engine", "cases")) for one in own)
        dots = [
            Line(engine, sorted((one.derived["flop_per_byte"], one.derived["tflops"]) for one in own
                                if str(one.parameters.get("engine", "cases")) == engine), points_only=True)
            for engine in engines
        ]  # fmt: skip
        title = f"Roofline: TFLOP/s against FLOP per byte, peak {peak:.4g} TFLOP/s"
        yield lines(f"roofline-{number}", title, [roof, *dots], unit="TFLOP/s", x="FLOP per byte", logarithmic="xy")


def _peak(one: Case) -> float:
    percent = one.derived.get("percent_of_peak")
    return 100 * float(one.derived["tflops"]) / percent if percent else 0.0


def _latencies(cases: Sequence[Case]) -> Iterator[Chart]:
    """How the iterations of each case are spread. Several cases are shown relative to their medians."""
    known = [one for one in cases if len(one.samples_s) >= _FEWEST_SAMPLES and one.median_s]
    shown = known[:_MOST_LINES]
    if not shown:
        return
    alone = len(known) == 1
    groups = [
        [min(s, _LATE * median(one.samples_s)) * (1000 if alone else 1 / median(one.samples_s)) for s in one.samples_s]
        for one in shown
    ]
    drawn = [Line(one.name, points, steps=True) for one, points in zip(shown, distributions(groups), strict=True)]
    some = f", the first {_MOST_LINES} of {len(known)} cases" * (len(known) > len(shown))
    title = f"Latency: share of iterations; the last bin has all beyond {_LATE} times the median{some}"
    yield lines("latency", title, drawn, x="ms" if alone else "times the median of the case", percent=True)


def _ranks(found: Document) -> Iterator[Chart]:
    """The ranks beside each other: of one case as measured, of several as the mean of what each is of the median."""
    keys = dict.fromkeys(key for one in found.cases for key in one.derived if key.endswith(_OF_RANKS))
    for key in keys:
        every = [one.derived.get(key) or () for one in found.cases]
        rows = [row for row in every if len(row) > 1 and all(row)]
        if rows and len({len(row) for row in rows}) == 1:
            yield _of_ranks(key, rows, found.machine.get("hosts") or ())


def _of_ranks(key: str, rows: Sequence[Sequence[float]], hosts: Sequence[str]) -> Chart:
    count, unit = len(rows[0]), _words(key.removesuffix(_OF_RANKS))
    names = [f"{rank} {hosts[rank]}" if rank < len(hosts) else str(rank) for rank in range(count)]
    if len(rows) == 1:
        return columns(key, f"{unit} of each rank", names, {unit: rows[0]}, unit=unit)
    shares = [fmean(row[rank] / median(row) for row in rows) for rank in range(count)]
    title = f"{unit} of each rank, relative to the median rank: mean of {len(rows)} cases"
    return columns(key, title, names, {"of the median": shares})
