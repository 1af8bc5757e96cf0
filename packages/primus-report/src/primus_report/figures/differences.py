"""What differs between runs: settings, environment, packages, code and hardware, each run held against the first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from primus_core.errors import PrimusError
from primus_core.runs.saved import Saved, load
from primus_runs.comparison import compare

__all__ = ["Differences", "Row", "between"]


@dataclass(frozen=True, slots=True)
class Row:
    """One thing that is not the same in all runs. `values`: of each run, in their order; None: not compared."""

    category: str
    what: str
    values: tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class Differences:
    """All rows, and why runs could not be compared."""

    rows: tuple[Row, ...] = ()
    notes: tuple[str, ...] = ()


def between(directories: Sequence[str]) -> Differences:
    """The differences of several runs, as `primus runs diff` finds them for two."""
    saved, notes = _saved(directories)
    if len(directories) < 2 or saved[0] is None:
        return Differences((), tuple(notes))
    found: dict[tuple[str, str], list[str | None]] = {}
    for index, other in enumerate(saved):
        for row in compare(saved[0], other) if index and other else ():
            values = found.setdefault((row.category, row.name), _values(saved, row.before))
            values[index] = row.after
    return Differences(tuple(Row(*key, tuple(values)) for key, values in found.items()), tuple(notes))


def _values(saved: Sequence[Saved | None], before: str) -> list[str | None]:
    """What does not differ is as in the first run."""
    return [None if one is None else before for one in saved]


def _saved(directories: Sequence[str]) -> tuple[list[Saved | None], list[str]]:
    saved: list[Saved | None] = []
    notes = []
    for directory in directories:
        try:
            saved.append(load(directory))
        except PrimusError as error:  # its figures are shown all the same
            saved.append(None)
            notes.append(f"not compared: {error.what}" + (f": {error.why}" if error.why else ""))
    return saved, notes
