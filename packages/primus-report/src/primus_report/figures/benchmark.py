"""What a run measured as a benchmark: the cases in the result file of `bench`."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator
from dataclasses import dataclass

from primus_report.figures import documents
from primus_report.figures.documents import items, mapping, number, text
from primus_report.figures.records import Records

__all__ = ["Case", "cases"]


@dataclass(frozen=True, slots=True)
class Case:
    """One case of a benchmark."""

    name: str
    value: float | None
    """In `unit`; None: it was not measured."""
    unit: str
    why: str
    """Why it has no value, or what to know of the value; empty: it was checked and steady."""
    source: str
    """The file, relative to the run directory."""


def cases(records: Records) -> tuple[Case, ...]:
    """Those of the run itself, in the order of its files."""
    paths = sorted(glob.glob(f"{glob.escape(records.directory)}/*.json"))
    return tuple(one for path in paths for one in _cases(path))


def _cases(path: str) -> Iterator[Case]:
    found = documents.read(path)
    if not text(found.get("benchmark")):
        return
    unsteady = mapping(mapping(found.get("steadiness")).get("cases"))
    for row in map(mapping, items(found.get("cases"))):
        name = text(row.get("name"))
        unchecked = "the result was not checked" if row.get("verified") is False else ""
        why = [text(row.get("error")), unchecked, text(unsteady.get(name))]
        yield Case(
            name, number(row.get("value")), text(row.get("unit")), "; ".join(filter(None, why)), os.path.basename(path)
        )
