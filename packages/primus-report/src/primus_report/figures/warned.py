"""What went wrong while a run trained: hangs, odd steps, slow ranks, as its events have them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from primus_core.journal.events import FILE
from primus_report.figures import documents
from primus_report.figures.documents import number, text, whole

__all__ = ["Warned", "of_run"]

_LEVELS = ("warning", "error", "critical")
_MOST_KINDS, _LONGEST = 64, 300


@dataclass(frozen=True, slots=True)
class Warned:
    """Events of one kind, of one rank where they have one."""

    event: str
    count: int
    first_step: int | None
    last_step: int | None
    time: float | None
    """Of the first one, as its words."""
    what: str


def of_run(directory: str) -> tuple[Warned, ...]:
    """The warnings and errors of a run's events, in the order of their first."""
    found: dict[tuple[str, int | None], Warned] = {}
    for row in _with_message(documents.lines(f"{directory}/{FILE}")):
        rank = whole(row.get("slow_rank", row.get("gpu_rank")))
        key = text(row.get("event"))[:_LONGEST], rank if rank is not None else whole(row.get("rank"))
        if (seen := found.get(key)) or len(found) < _MOST_KINDS:
            found[key] = _after(seen, row) if seen else _first(key[0], row)
    return tuple(found.values())


def _with_message(rows: Iterable[Mapping[str, Any]]) -> Iterable[Mapping[str, Any]]:
    return (row for row in rows if row.get("level") in _LEVELS and text(row.get("event")) and text(row.get("message")))


def _first(event: str, row: Mapping[str, Any]) -> Warned:
    step = whole(row.get("step"))
    return Warned(event, 1, step, step, number(row.get("time")), text(row.get("message"))[:_LONGEST])


def _after(seen: Warned, row: Mapping[str, Any]) -> Warned:
    step = whole(row.get("step"))
    return replace(seen, count=seen.count + 1, last_step=seen.last_step if step is None else step)
