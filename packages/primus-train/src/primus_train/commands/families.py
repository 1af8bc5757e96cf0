"""`primus config validate DIR --markdown`: what became of the experiments in a folder, by family of models."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from primus_core.errors import PrimusError

__all__ = ["Judged", "family_of", "markdown", "notes_of_all"]


class Judged(Protocol):
    """What became of one experiment."""

    @property
    def file(self) -> str:
        """Its path."""

    @property
    def notes(self) -> Sequence[str]:
        """What a launch would tell."""

    @property
    def error(self) -> PrimusError | None:
        """Why a launch would refuse it."""


def family_of(path: str) -> str:
    """Return what a file's name says of its model before the first number, or without a size: `qwen` of qwen3_8B."""
    stem = re.split(r"[-.]", os.path.basename(path))[0]
    return re.sub(r"_[a-z]?$", "", re.split(r"\d", stem.lower())[0]).strip("_") or stem


def notes_of_all(found: Iterable[Judged]) -> set[str]:
    """Return the notes that all accepted experiments have: they say something of this machine or of the folder."""
    accepted = [set(one.notes) for one in found if not one.error]
    return set.intersection(*accepted) if accepted else set()


def markdown(found: Iterable[Judged], reason: Callable[[PrimusError], str]) -> str:
    """Return a table with a row for each family, and below it why each `reason` is one."""
    families: dict[str, list[Judged]] = {}
    for one in found:
        families.setdefault(family_of(one.file), []).append(one)
    every = [one for some in families.values() for one in some]
    of_all = notes_of_all(every)
    rows = [_row(name, some, of_all, reason) for name, some in sorted(families.items())]
    head = "| models | files | accepted | with notes | refused, because |\n|---|---|---|---|---|"
    whys = {reason(one.error): one.error.each()[0].why for one in every if one.error}
    text = "\n".join([head, *rows, _row("all", every, of_all, None)])
    return f"{text}\n" + "".join(f"\n* {why}: {because}" for why, because in whys.items() if because) + "\n"


def _row(name: str, some: Sequence[Judged], of_all: set[str], reason: Callable[[PrimusError], str] | None) -> str:
    accepted = [one for one in some if not one.error]
    noted = sum(bool(set(one.notes) - of_all) for one in accepted)  # what all have says nothing of one
    whys = Counter(reason(one.error) for one in some if one.error and reason)
    because = "; ".join(f"{number}: {why}" for why, number in whys.most_common())
    refused = len(some) - len(accepted)
    return f"| {name} | {len(some)} | {len(accepted)} | {noted} | {because.replace('|', '/') or refused or ''} |"
