"""What was found to read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from primus_core.journal.record import RunRecord
from primus_diagnose.lines.times import moment
from primus_diagnose.scan.source import Source
from primus_machine.files.recorder import Dump

__all__ = ["Gathered"]

_EARLY_S = 60.0
"""Clocks of nodes differ."""
_LATE_S = 600.0
"""A kernel or scheduler may report after the run has ended."""


@dataclass(slots=True)
class Gathered:
    """Logs and records, and what is known of the run as a whole."""

    sources: list[Source] = field(default_factory=list)
    dumps: list[Dump] = field(default_factory=list)
    """Of flight recorders."""
    hang: Mapping[str, Any] = field(default_factory=dict)
    """Where ranks were when they hung, as `primus-watch` saw it (`hang/N/answer.json`)."""
    run: str = ""
    """The run directory; empty: the logs are of no run of Primus."""
    record: RunRecord = field(default_factory=RunRecord)
    is_running: bool = False
    """Whether a process of the run is certainly alive."""
    world_size: int = 0
    """0: nobody says it."""
    skipped: list[str] = field(default_factory=list)

    def period(self) -> tuple[float, float] | None:
        """Return when a line of a kernel can belong to the run; None: nobody knows when the run began."""
        # A run that its scheduler started again keeps the attempts of its earlier jobs.
        starts = (self.record.started, *(one.started for one in self.record.attempts))
        began = min(filter(None, map(moment, starts)), default=None)
        return (began - _EARLY_S, (self.record.ended or math.inf) + _LATE_S) if began else None

    def known_ranks(self) -> set[int]:
        """The ranks of which there is a log."""
        return {one.rank for one in self.sources if one.rank is not None and not one.is_record}
