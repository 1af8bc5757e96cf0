"""What the report of a workspace says, section by section."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from primus_page.chart import Chart
from primus_page.parts import Cards, Charts, Part, Section, Table, Words
from primus_report.figures.failures import UNKNOWN_NODE
from primus_report.figures.fleet import Fleet, FleetRun, Group, Period
from primus_report.figures.goodput import CAUSES
from primus_report.writers.shown import card, clock, duration, share

__all__ = ["sections"]

_NAMED = 3
"""So many nodes or causes a cell names."""


def sections(fleet: Fleet, charts: Sequence[Chart]) -> list[Section]:
    """All that have something to say."""
    found = [
        Section("figures", "Figures", (Cards(list(map(card, fleet.figures.values()))), _status(fleet))),
        Section("charts", "Charts", (Charts(charts),) if charts else ()),
        Section("causes", "Failures by cause", tuple(_groups(fleet.causes, "cause", "nodes"))),
        Section("nodes", "Failures by node", tuple(_nodes(fleet))),
        Section("time", "Where the device-hours went", tuple(_lost(fleet))),
        Section("periods", "Over time", tuple(_periods(fleet.period, fleet.periods))),
        Section("runs", "Runs", (Table(_OF_RUN, [_run(run) for run in fleet.runs]),) if fleet.runs else ()),
    ]
    return [section for section in found if section.parts]


def _status(fleet: Fleet) -> Part:
    return Table(("status", "runs"), [(name, str(count)) for name, count in fleet.status.items()])


def _groups(groups: Sequence[Group], title: str, others: str) -> Iterator[Part]:
    if not groups:
        yield Words("No failure was recorded.")
        return
    heads = (title, "failures", "runs", others, "last", "device-hours lost to failures in these runs")
    yield Table(heads, [_group(one) for one in groups])


def _group(one: Group) -> Sequence[str]:
    return one.name, str(one.count), str(len(one.runs)), _some(one.others), clock(one.last), f"{one.device_hours:,.2f}"


def _some(names: Sequence[str]) -> str:
    more = f", {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return (", ".join(names[:_NAMED]) or "not recorded") + more


def _nodes(fleet: Fleet) -> Iterator[Part]:
    all_ = sum(len(run.failures) for run in fleet.runs)
    if first := next((one for one in fleet.nodes if one.name != UNKNOWN_NODE), None):
        yield Words(f"The node that fails most is {first.name}: {first.count} of {all_} failures.")
    yield from _groups(fleet.nodes, "node", "causes")


def _lost(fleet: Fleet) -> Iterator[Part]:
    total = sum(fleet.lost.values())
    rows = [
        (cause, CAUSES[cause], f"{hours:,.2f}", share(hours / total))
        for cause, hours in fleet.lost.items()
        if total and abs(hours) > 1e-6
    ]
    if rows:
        yield Table(("cause", "what", "device-hours", "share"), rows)


def _periods(name: str, periods: Sequence[Period]) -> Iterator[Part]:
    rows = [
        (
            one.name,
            str(one.runs),
            str(one.failures),
            f"{one.gpu_hours:,.2f}",
            f"{one.device_hours:,.2f}",
            f"{one.useful_hours:,.2f}",
        )
        for one in periods
        if one.runs
    ]
    if rows:
        yield Table(
            (f"{name} in which they began", "runs", "failures", "GPU-hours", "device-hours", "useful device-hours"),
            rows,
        )


_OF_RUN = (
    "run",
    "status",
    "framework",
    "model",
    "devices",
    "began",
    "wall time",
    "GPU-hours",
    "goodput",
    "failures",
    "owner",
)


def _run(run: FleetRun) -> Sequence[str]:
    wall = "not recorded" if run.wall_s is None else duration(run.wall_s)
    hours = "not recorded" if run.gpu_hours is None else f"{run.gpu_hours:,.2f}"
    good = "not recorded" if run.goodput is None else share(run.goodput)
    devices = f"{run.gpus} GPU" if run.gpus else f"{run.devices} CPU"
    return (run.name, run.status, run.framework, run.model, devices, clock(run.started), wall, hours, good,
            str(len(run.failures)), run.owner)  # fmt: skip
