"""How far a run came, and how fast, from the lines of its metrics."""

from __future__ import annotations

from typing import NamedTuple

from primus_core.journal import summary
from primus_core.plan.plan import METRICS
from primus_diagnose.advice.figures import Figures
from primus_machine.files.plain_json import number

__all__ = ["Pace", "of_run", "reached"]


class Pace(NamedTuple):
    """How much time a run took."""

    start_s: float
    """From its beginning to its first line."""
    step_s: float
    """For each step, saves and evaluations included."""


class _Line(NamedTuple):
    step: int
    time: float
    step_s: float


def reached(figures: Figures) -> int | None:
    """The last step that the run made, which a run that was killed has in its lines only; None: it made none."""
    last = figures.record.last_step
    if last is None and figures.directory:
        for row in summary.stream(f"{figures.directory}/{METRICS}"):
            last = row["step"]
    return last


def of_run(figures: Figures) -> Pace | None:
    """The pace of the newest start of the run; None: its lines do not say it."""
    started, first, begun, last = figures.record.started, None, None, None
    if started is None or not figures.directory:
        return None
    for row in summary.stream(f"{figures.directory}/{METRICS}"):
        time = number(row.get("time"))
        if time is None or time < started:  # of an earlier job of this run
            continue
        line = _Line(row["step"], time, number(row.get("step_time_s")) or 0.0)
        first = first or line
        begun = line if begun is None or last is None or line.step <= last.step else begun
        last = line
    if first is None or begun is None or last is None:
        return None
    made = last.step - begun.step
    each = (last.time - begun.time) / made if made else last.step_s
    return Pace(first.time - started, each) if each > 0 else None
