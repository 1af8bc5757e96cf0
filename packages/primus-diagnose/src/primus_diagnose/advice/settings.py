"""Advice that changes a setting: rows of `remedies.toml`, filled in with the run's figures."""

from __future__ import annotations

import math
import os
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from primus_diagnose.advice.figures import Figures
from primus_diagnose.verdict import Advice
from primus_machine import strict

__all__ = ["of", "rows"]

_FILE = os.path.join(os.path.dirname(__file__), "..", "data", "remedies.toml")
_USUAL_RATE = 1e-3
"""Few models train with more (Adam): a tenth of a rate that is wrong by far is wrong, too."""
_CHANGES: Mapping[str, Callable[[Any], Any]] = {
    "half": lambda value: value // 2 if isinstance(value, int) else value / 2,
    "tenth": lambda value: min(float(f"{value / 10:.6g}"), _USUAL_RATE),
    "double": lambda value: value * 2 or 100,
}


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the file."""

    action: str
    cost: str
    words: dict[str, str]
    """By framework."""
    number: str = ""
    change: str = ""
    setting: dict[str, str] = field(default_factory=dict)
    to: Any = None
    unless: list[Any] = field(default_factory=list)
    below: str = ""
    """The number that the new value must be below: with more, nothing changes."""


@cache
def rows() -> Mapping[str, Row]:
    """All rows by name."""
    with open(_FILE, "rb") as file:
        return {name: strict.read(Row, row) for name, row in tomllib.load(file).items()}


def of(name: str, figures: Figures) -> Iterator[Advice]:
    """The advice of that name; nothing: the run's figures are not known, or the change is made already."""
    row = rows()[name]
    setting = row.setting.get(figures.framework, "")
    before = figures.number(row.number) if row.number else figures.settings.get(setting)
    after = _after(row, before)
    if after is None or after == before or before in row.unless or figures.framework not in row.words:
        return
    if row.below and after >= (figures.number(row.below) or math.inf):
        return
    values = {**figures.hyperparameters, "after": after}
    yield Advice(
        action=row.action,
        setting=setting or _named(row, figures.framework),
        before=before,
        after=after,
        cost=row.cost.format_map(_Known(values)),
        words=row.words[figures.framework].format_map(_Known(values)),
    )


def _after(row: Row, before: Any) -> Any:
    if not row.change:
        return row.to
    if not isinstance(before, int | float) or isinstance(before, bool):
        return None
    after = _CHANGES[row.change](before)
    return after if after or row.setting else None  # half of a batch of 1 is none


def _named(row: Row, framework: str) -> str:
    """The setting that the words give a value to."""
    return row.words.get(framework, row.number).partition("=")[0]


class _Known(dict[str, Any]):
    """Values for a text's places; what is not known stays a place."""

    def __missing__(self, key: str) -> str:
        return f"<{key}>"
