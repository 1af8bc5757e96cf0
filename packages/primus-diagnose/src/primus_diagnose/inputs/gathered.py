"""What was found to read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from primus_core.journal.record import RunRecord
from primus_diagnose.scan.source import Source
from primus_machine.files.recorder import Dump

__all__ = ["Gathered"]


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
    world_size: int = 0
    """0: nobody says it."""
    skipped: list[str] = field(default_factory=list)

    def known_ranks(self) -> set[int]:
        """The ranks of which there is a log."""
        return {one.rank for one in self.sources if one.rank is not None and not one.is_record}
