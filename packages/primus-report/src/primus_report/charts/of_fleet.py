"""The charts of a workspace: hours and failures over time, failures by cause and by node."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from primus_page.chart import Chart, bars, columns
from primus_report.figures.fleet import Fleet, Group

__all__ = ["charts"]

_MOST = 15
"""So many causes or nodes are drawn; the tables have all."""


def charts(fleet: Fleet) -> tuple[Chart, ...]:
    """All that there are data for."""
    return tuple(_charts(fleet))


def _charts(fleet: Fleet) -> Iterator[Chart]:
    names = [period.name for period in fleet.periods]
    if any(period.device_hours for period in fleet.periods):
        useful = [period.useful_hours for period in fleet.periods]
        rest = [max(period.device_hours - period.useful_hours, 0.0) for period in fleet.periods]
        parts = {"useful": useful, "lost, or not of a training": rest}
        yield columns("hours", f"Device-hours by the {fleet.period} in which a run began", names, parts, unit="h")
    if any(period.failures for period in fleet.periods):
        failed = [float(period.failures) for period in fleet.periods]
        yield columns(
            "failures", f"Failures by the {fleet.period} in which their run began", names, {"failures": failed}
        )
    yield from _groups("causes", "Failures by cause", fleet.causes)
    yield from _groups("nodes", "Failures by node", fleet.nodes)
    lost = {cause: [hours] for cause, hours in fleet.lost.items() if hours > 0}
    if lost:
        yield bars("time", "Where the device-hours of trainings went", ["all runs"], lost, unit="h")


def _groups(name: str, title: str, groups: Sequence[Group]) -> Iterator[Chart]:
    if groups:
        shown = groups[:_MOST]
        yield bars(name, title, [group.name for group in shown], {"failures": [float(group.count) for group in shown]})
