"""How the time of one run was spent: its steps, attempts, and the parts of its wall time."""

from __future__ import annotations

from dataclasses import dataclass

from primus_report.figures import attempts, goodput, records, settings, spans, steps
from primus_report.figures.attempts import Attempt, Held
from primus_report.figures.goodput import TimeShare
from primus_report.figures.records import Records
from primus_report.figures.settings import Identity
from primus_report.figures.spans import Span
from primus_report.figures.steps import Steps

__all__ = ["Timing", "read"]


@dataclass(frozen=True, slots=True)
class Timing:
    """One run's steps and time."""

    identity: Identity
    records: Records
    steps: Steps
    spans: tuple[Span, ...]
    attempts: tuple[Attempt, ...]
    held: Held | None
    """None: when the run began or ended was not recorded."""
    time: tuple[TimeShare, ...]


def read(directory: str, status: str, owner: str, now: float) -> Timing:
    """The time of the run in `directory`, which has this status."""
    of_run, lines = records.read(directory), steps.read(directory)
    identity = settings.identity(of_run, status, owner)
    tried = tuple(attempts.listed(of_run))
    begun = sorted({one.started for one in tried} | set(of_run.events.starts))
    found = tuple(spans.split(lines, begun, of_run.events.checkpoints))
    held = attempts.held(of_run, tried, lines.last("time"), status, now)
    trains = bool(lines or identity.framework)  # a benchmark or a check has no steps that could be useful
    time = goodput.shares(lines, found, tried, held, of_run.events, identity.devices) if held and trains else ()
    return Timing(identity, of_run, lines, found, tried, held, time)
