"""The modules that a plan starts by name. A saved plan holds the names: they stay, and former ones are known here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

__all__ = ["FAILURES", "FORMER", "OWN_TASK", "RANK", "RENDEZVOUS", "renamed"]

RANK = "primus_core.programs.rank"
RENDEZVOUS = "primus_core.programs.rendezvous"
OWN_TASK = "primus_core.programs.own_task"

FAILURES = "logs/failures"
"""Folder in the run directory where `RANK` leaves one `rank_<r>.json` for each rank that failed."""

FORMER: Mapping[str, str] = {
    "primus_core.rank": RANK,
    "primus_core.launch.rendezvous": RENDEZVOUS,
    "primus_core.registration": OWN_TASK,
    "primus_core.indexed_text": "primus_core.training.indexed_text",
}
"""What they were called in plans of schema 2 before 0.2."""


def renamed(words: Sequence[str]) -> tuple[str, ...]:
    """The words of a saved command, each program by its present name."""
    return tuple(FORMER.get(word, word) for word in words)
