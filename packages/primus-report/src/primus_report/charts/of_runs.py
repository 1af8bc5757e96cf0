"""The charts of one run, or of several over each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import compress

from primus_page.chart import Chart, Line, bars, lines
from primus_page.series import apart, distributions, thinned
from primus_report.figures.goodput import CAUSES
from primus_report.figures.run import RunReport

__all__ = ["charts"]

_POINTS = 2000
"""Of one run in one chart; several share twice as many."""
_FEWEST_POINTS = 100
_DEVICES, _OPERATIONS = 32, 15
"""So many devices of a run and operations of traces are drawn."""
_CURVES = (
    ("loss", "Loss", "", False),
    ("lr", "Learning rate", "", False),
    ("grad_norm", "Gradient norm", "", False),
    ("tokens_per_second", "Throughput", "tokens/s", True),
    ("mfu", "MFU", "", True),
    ("step_time_s", "Step time", "s", True),
    ("memory_gib", "Peak memory of the reporting rank", "GiB", False),
)
"""A column of the metrics, the title and unit of its chart, and whether the steady-state window is marked in it."""


def charts(runs: Sequence[RunReport], names: Sequence[str]) -> tuple[Chart, ...]:
    """All that there are data for."""
    most = max(2 * _POINTS // max(len(runs), 2), _FEWEST_POINTS)
    curves = [chart for curve in _CURVES if (chart := _curve(*curve, runs, names, most))]
    return (*curves, *_distribution(runs, names), *_time(runs, names), *_traces(runs, names))


def _curve(
    column: str,
    title: str,
    unit: str,
    marked: bool,
    runs: Sequence[RunReport],
    names: Sequence[str],
    most: int,
) -> Chart | None:
    drawn = []
    for run, name in zip(runs, names, strict=True):
        if run.steps.known(column):
            drawn.append(Line(name, apart(thinned(run.steps.step, run.steps.columns[column], most))))
        if column == "loss" and run.steps.validations:
            xs, ys = zip(*run.steps.validations, strict=True)
            label = "validation" if len(runs) == 1 else f"{name}, validation"
            drawn.append(Line(label, thinned(xs, ys, most), dashed=True))
    window = runs[0].window if marked and len(runs) == 1 else None
    place = (float(window.first_step), float(window.last_step)) if window else None
    return lines(column, title, drawn, unit=unit, window=place, percent=column == "mfu") if drawn else None


def _traces(runs: Sequence[RunReport], names: Sequence[str]) -> Iterator[Chart]:
    """The parts of the profiled steps of each device, its operations by kind, and the longest operations."""
    found = [
        (f"{name} {one.name}" if len(runs) > 1 else one.name, one)
        for run, name in zip(runs, names, strict=True)
        for one in run.traces.ranks[:_DEVICES]
    ]
    if not found:
        return
    labels = [label for label, _ in found]
    parts = {
        "compute": [one.share(one.compute_s) for _, one in found],
        "communication, not hidden": [one.share(one.exposed_s) for _, one in found],
        "waiting for data": [one.share(one.data_s) for _, one in found],
        "idle otherwise": [one.share(max(one.idle_s - one.data_s, 0.0)) for _, one in found],
    }
    yield bars("trace_parts", "Profiled steps: parts of the time", labels, parts, percent=True)
    kinds = dict.fromkeys(kind for _, one in found for kind in one.kinds)
    by_kind = {kind: [one.kinds.get(kind, 0.0) * 1e3 for _, one in found] for kind in kinds}
    yield bars("trace_kinds", "Profiled steps: operations by kind", labels, by_kind, unit="ms")
    for number, (run, name) in enumerate(zip(runs, names, strict=True)):
        yield from _operations(run, f"trace_operations_{number}", name if len(runs) > 1 else "")


def _operations(run: RunReport, chart: str, name: str) -> Iterator[Chart]:
    if longest := run.traces.operations[:_OPERATIONS]:
        title = f"Profiled steps: the longest operations {name}".strip()
        times = {"time": [one.seconds * 1e3 for one in longest]}
        yield bars(chart, title, [one.name for one in longest], times, unit="ms")


def _distribution(runs: Sequence[RunReport], names: Sequence[str]) -> Iterator[Chart]:
    """How many of the lines of each run's steady-state window took how long, as a share."""
    times = [_steady_times(run) for run in runs]
    if not any(times):
        return
    shares = distributions([one for one in times if one])
    drawn = [Line(name, points, steps=True) for name, points in zip(compress(names, times), shares, strict=True)]
    yield lines(
        "step_time_distribution", "Step time: share of steps in the steady-state window", drawn, x="s", percent=True
    )


def _steady_times(run: RunReport) -> list[float]:
    return run.steps.known("step_time_s", run.window.first, run.window.end) if run.window else []


def _time(runs: Sequence[RunReport], names: Sequence[str]) -> Iterator[Chart]:
    known = [
        (name, {part.cause: max(part.share, 0.0) for part in run.time})
        for run, name in zip(runs, names, strict=True)
        if run.time
    ]
    if not known:
        return
    parts = {cause: [shares.get(cause, 0.0) for _, shares in known] for cause in CAUSES}
    shown = {cause: values for cause, values in parts.items() if any(value > 0.0005 for value in values)}
    yield bars(
        "time",
        "Where the time went, as a share of wall time",
        [name for name, _ in known] if len(runs) > 1 else ["this run"],
        shown,
        percent=True,
    )
