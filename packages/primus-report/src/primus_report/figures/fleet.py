"""All runs of a workspace: hours, goodput, where time was lost, failures by cause and by node, over time."""

from __future__ import annotations

import time as clock
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from primus_machine.host import HostRoot
from primus_report.figures import failures, timing
from primus_report.figures.failures import Failure
from primus_report.figures.figure import Figure, unknown
from primus_report.figures.goodput import CAUSES, USEFUL
from primus_runs import listing

__all__ = ["Fleet", "FleetRun", "Group", "Period", "read"]

_MOST_DAYS = 62
"""Of a longer time, a week is one period."""
_DAY_S = 86_400


@dataclass(frozen=True, slots=True)
class FleetRun:
    """A run of the fleet. None: not recorded."""

    name: str
    status: str
    owner: str
    framework: str
    model: str
    devices: int
    gpus: int
    started: float | None
    wall_s: float | None
    device_hours: float | None
    gpu_hours: float | None
    goodput: float | None
    lost: dict[str, float]
    """Device-hours by cause, the useful ones among them."""
    failures: tuple[Failure, ...]


@dataclass(frozen=True, slots=True)
class Group:
    """Failures with one cause, or of one node."""

    name: str
    count: int
    runs: tuple[str, ...]
    others: tuple[str, ...]
    """Of a cause, the nodes; of a node, the causes; the most frequent first."""
    last: float | None
    device_hours: float
    """Lost in the runs in question after failures: failed attempts' ends, repeated steps, restarts."""


@dataclass(frozen=True, slots=True)
class Period:
    """A day or a week; what began in it."""

    name: str
    runs: int
    failures: int
    device_hours: float
    useful_hours: float
    gpu_hours: float


@dataclass(frozen=True, slots=True)
class Fleet:
    """A workspace."""

    workspace: str
    figures: dict[str, Figure]
    lost: dict[str, float]
    """Device-hours by cause."""
    status: dict[str, int]
    causes: tuple[Group, ...]
    nodes: tuple[Group, ...]
    period: str
    """`day` or `week`."""
    periods: tuple[Period, ...]
    runs: tuple[FleetRun, ...]
    time: float


_OF_FAILURES = ("failure", "repeated", "restart")


def read(workspace: str, host: HostRoot, price: float | None = None) -> Fleet:
    """The runs in `workspace`, newest first. Each is read and let go: a workspace may have thousands."""
    now = host.now()
    runs = tuple(_run(found, now) for found in listing.find(workspace, host))
    lost = {cause: sum(run.lost.get(cause, 0.0) for run in runs) for cause in CAUSES}
    period, periods = _periods(runs)
    return Fleet(
        workspace=workspace,
        figures=_figures(runs, lost, price),
        lost=lost,
        status=_counted(run.status for run in runs),
        causes=_grouped(runs, lambda one: (one.cause,), lambda one: one.nodes),
        nodes=_grouped(runs, lambda one: one.nodes or (failures.UNKNOWN_NODE,), lambda one: (one.cause,)),
        period=period,
        periods=periods,
        runs=runs,
        time=now,
    )


def _run(found: listing.Run, now: float) -> FleetRun:
    spent = timing.read(found.directory, found.status, found.owner, now)
    one, wall = spent.identity, spent.held.seconds if spent.held else None
    return FleetRun(
        name=found.name,
        status=found.status,
        owner=found.owner,
        framework=one.framework,
        model=one.model,
        devices=one.devices,
        gpus=one.gpus,
        started=one.started,
        wall_s=wall,
        device_hours=None if wall is None else wall * one.devices / 3600,
        gpu_hours=None if wall is None else wall * one.gpus / 3600,
        goodput=next((part.share for part in spent.time if part.is_useful), None) if spent.steps else None,
        lost={part.cause: part.device_hours for part in spent.time} if spent.steps else {},
        failures=failures.of_run(spent.records, found.name, found.status, spent.attempts),
    )


def _figures(runs: Sequence[FleetRun], lost: dict[str, float], price: float | None) -> dict[str, Figure]:
    gpu_hours = sum(run.gpu_hours or 0.0 for run in runs)
    trained = sum(lost.values())
    failed = sum(run.status in ("failed", "lost") for run in runs)
    goodput = unknown("goodput", "share", "no run of the workspace logged a step with its time")
    if trained:
        goodput = Figure(
            "goodput", lost[USEFUL] / trained, "share", "useful device-hours ÷ device-hours of all runs that trained"
        )
    found = {
        "runs": Figure("runs", float(len(runs)), "", "folders of the workspace"),
        "failed_runs": Figure("failed or lost runs", float(failed), "", "metadata.json: status"),
        "failures": Figure(
            "failures", float(sum(len(run.failures) for run in runs)), "", "runs and attempts that failed"
        ),
        "goodput": goodput,
        "gpu_hours": Figure("GPU-hours", gpu_hours, "GPU-h", "wall time × GPUs of all runs"),
        "device_hours": Figure(
            "device-hours", sum(run.device_hours or 0.0 for run in runs), "h", "wall time × devices"
        ),
    }
    untimed = sum(run.wall_s is None for run in runs)
    found["untimed_runs"] = Figure("runs without a known time", float(untimed), "", "in no hour above")
    return found | ({} if price is None else {"cost": Figure("cost", gpu_hours * price, "", f"GPU-hours × {price:g}")})


def _counted(names: Iterable[str]) -> dict[str, int]:
    """How often each stands there, the most frequent first."""
    found: defaultdict[str, int] = defaultdict(int)
    for name in names:
        found[name] += 1
    return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))


Names = Callable[[Failure], Sequence[str]]


def _grouped(runs: Sequence[FleetRun], by: Names, others: Names) -> tuple[Group, ...]:
    """The failures under each name, the most frequent first."""
    found: defaultdict[str, list[Failure]] = defaultdict(list)
    for run in runs:
        for failure in run.failures:
            for name in by(failure):
                found[name].append(failure)
    lost = {run.name: sum(run.lost.get(cause, 0.0) for cause in _OF_FAILURES) for run in runs}
    groups = [_group(name, several, others, lost) for name, several in found.items()]
    return tuple(sorted(groups, key=lambda one: (-one.count, one.name)))


def _group(name: str, several: Sequence[Failure], others: Names, lost: dict[str, float]) -> Group:
    runs = tuple(dict.fromkeys(one.run for one in several))
    times = [one.time for one in several if one.time is not None]
    beside = tuple(_counted(other for one in several for other in others(one)))
    return Group(name, len(several), runs, beside, max(times, default=None), sum(lost[run] for run in runs))


def _periods(runs: Sequence[FleetRun]) -> tuple[str, tuple[Period, ...]]:
    """Days, or weeks where there are many; those in which nothing began, too."""
    known = [(run, run.started) for run in runs if run.started is not None and 0 < run.started < 1 << 33]
    if not known:
        return "day", ()
    starts = [started for _, started in known]
    days = 7 if max(starts) - min(starts) > _MOST_DAYS * _DAY_S else 1
    found: dict[str, list[FleetRun]] = {}
    moment = min(starts)
    while moment < max(starts):
        found[_period(moment, days)] = []
        moment += days * _DAY_S
    for run, started in sorted(known, key=lambda one: one[1]):
        found.setdefault(_period(started, days), []).append(run)
    return "week" if days == 7 else "day", tuple(_summed(name, found[name]) for name in sorted(found))


def _period(moment: float, days: int) -> str:
    """The date, in local time; of a week, that of its Monday."""
    date = clock.localtime(moment)
    if days == 7:
        date = clock.localtime(moment - date.tm_wday * _DAY_S)
    return clock.strftime("%Y-%m-%d", date)


def _summed(name: str, runs: Sequence[FleetRun]) -> Period:
    return Period(
        name,
        len(runs),
        sum(len(run.failures) for run in runs),
        sum(run.device_hours or 0.0 for run in runs),
        sum(run.lost.get(USEFUL, 0.0) for run in runs),
        sum(run.gpu_hours or 0.0 for run in runs),
    )
