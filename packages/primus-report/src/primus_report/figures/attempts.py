"""The attempts of a run: each start of its ranks, with how it ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from primus_report.figures import documents
from primus_report.figures.documents import items, number, whole
from primus_report.figures.records import Records

__all__ = ["Attempt", "Held", "held", "listed"]

_ENDED = ("completed", "failed", "interrupted", "stopped", "skipped")


@dataclass(frozen=True, slots=True)
class Attempt:
    """One start of the ranks. None: not recorded."""

    number: int
    started: float
    ended: float | None
    exit_code: int | None
    last_step: int | None
    what: str
    """Why it ended, in the run's words."""
    lost_nodes: tuple[str, ...] = ()

    @property
    def is_good(self) -> bool:
        """Whether it ended as it should, or is still running."""
        return self.exit_code in (0, None) and not self.what


@dataclass(frozen=True, slots=True)
class Held:
    """From when to when the run had its devices, and how long it waited in a queue in between."""

    begin: float
    end: float
    waits: tuple[tuple[float, float], ...]
    """From when to when its job waited in a queue."""
    is_running: bool
    source: str

    @property
    def seconds(self) -> float:
        """How long it had them."""
        return self.between(self.begin, self.end)

    @property
    def queued_s(self) -> float:
        """How long it waited in the queue in between."""
        return max(self.end - self.begin - self.seconds, 0.0)

    def between(self, begin: float, end: float) -> float:
        """How long it had them between two moments."""
        waited = (min(end, until) - max(begin, since) for since, until in self.waits)
        return max(end - begin - sum(max(one, 0.0) for one in waited), 0.0)


def listed(records: Records) -> list[Attempt]:
    """The attempts, in their order."""
    rows = [row for row in items(records.metadata.get("attempts")) if isinstance(row, dict)]
    found = [_attempt(index, row) for index, row in enumerate(rows, 1)]
    return sorted((one for one in found if one), key=lambda one: one.started)


def _attempt(index: int, row: dict[str, Any]) -> Attempt | None:
    started = number(row.get("started"))
    if started is None:
        return None
    return Attempt(
        index,
        started,
        number(row.get("ended")),
        whole(row.get("exit_code")),
        whole(row.get("last_step")),
        documents.text(row.get("what")),
        tuple(map(str, items(row.get("lost_nodes")))),
    )


def held(
    records: Records, attempts: Sequence[Attempt], last_line: float | None, status: str, now: float
) -> Held | None:
    """When the run had its devices; None: nobody recorded when it began or ended.

    It begins with Primus on the node: with the run's first `run_started` where it was submitted to a scheduler, and
    with `started` of the metadata elsewhere. A wait between `requeued` and the next start holds no device.
    """
    known, events = records.metadata, records.events
    submitted = bool(known.get("submitted") or known.get("job_id"))
    begins = [*events.starts[:1], *(one.started for one in attempts[:1])]
    started = number(known.get("started"))
    begins += [started] if started is not None and not (submitted and begins) else []
    end, source = _end(known, events.last, last_line, status, now)
    if not begins or end is None:
        return None
    begin = min(begins)
    waits = tuple((moment, _next(events.starts, moment, end)) for moment in events.requeued)
    return Held(begin, max(end, begin), waits, status == "running", source)


def _end(
    known: dict[str, Any], last_event: float | None, last_line: float | None, status: str, now: float
) -> tuple[float | None, str]:
    ended = number(known.get("ended"))
    if status == "running":
        return now, "until now: the run is running"
    if ended is not None and known.get("status") in _ENDED:
        return ended, "metadata.json: started, ended"
    signs = [sign for sign in (last_event, last_line) if sign is not None]
    return max(signs, default=None), "until its last sign of life: how it ended was not recorded"


def _next(starts: Sequence[float], moment: float, end: float) -> float:
    return next((start for start in starts if start > moment), end)
