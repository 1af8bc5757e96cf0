"""Compares a model's parameters, as its facts give them, with the numbers that are known of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

from primus_train.models.architecture import Entry, Model
from primus_train.models.arithmetic import parameters

__all__ = ["Check", "Difference", "compare"]

_SUSPECTS: tuple[dict[str, Any], ...] = (
    *({"tie_embeddings": value} for value in (True, False)),
    *({"qkv_bias": value} for value in (True, False)),
    *({"out_bias": value} for value in (True, False)),
    *({"qk_norm": value} for value in ("rms", "none")),
    *({"norms_per_layer": value} for value in (2, 4)),
)
"""Facts that are often copied wrong, and change the number."""


class Difference(NamedTuple):
    """A number that is not as known."""

    what: str
    known: int
    by_facts: int
    hint: str


@dataclass(frozen=True, slots=True)
class Check:
    """One model, compared."""

    name: str
    where: str
    known: bool
    """Whether the model says a number at all."""
    differences: tuple[Difference, ...]

    def texts(self) -> Iterator[str]:
        """The differences for people."""
        for d in self.differences:
            head = f"{d.what} {d.known:,} are known, {d.by_facts:,} by its facts ({d.by_facts - d.known:+,})"
            yield f"{head} at {self.where}" + (f"; equal with {d.hint}" if d.hint else "")

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "differences": [d._asdict() for d in self.differences]}


def compare(model: Model) -> Check:
    """The model's total and active parameters beside the known ones."""
    facts, counts = model.facts, parameters(model.facts)
    pairs = (
        ("parameters", facts.parameters, counts.total),
        ("active parameters", facts.parameters_active, counts.active),
    )
    wrong = (Difference(what, known, found, _hint(facts, what, known)) for what, known, found in pairs
             if known is not None and known != found)  # fmt: skip
    return Check(model.name, model.where, facts.parameters is not None, tuple(wrong))


def _hint(facts: Entry, what: str, known: int) -> str:
    """The one fact that, changed, would give the known number."""
    for change in _SUSPECTS:
        counts = parameters(replace(facts, **change))
        if known == (counts.total if what == "parameters" else counts.active):
            return ", ".join(f"{key}: {str(value).lower()}" for key, value in change.items())
    return ""
