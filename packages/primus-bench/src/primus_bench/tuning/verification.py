"""Whether a run used the tuned kernels: its log against the tuning file that was in force.

hipBLASLt ignores an entry without a word where the call comes by another way (ROCm/hipBLASLt#2200: through rocBLAS), or
where its type of computation is another one (ROCm/rocm-libraries#6557). Only the log shows it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

from primus_bench.tuning.calls import Key
from primus_bench.tuning.results import Entry, by_key
from primus_bench.tuning.shapes import Shape

__all__ = ["Outcome", "Verified", "verify"]

Outcome = Literal["tuned", "missed", "unknown", "untuned"]
"""Used; another kernel was used; the log does not say which; the tuning file has no entry for it."""


class Verified(NamedTuple):
    """One shape of the log."""

    shape: Shape
    key: Key | None
    outcome: Outcome
    tuned: tuple[int, ...]
    """The indices that the tuning file names."""
    missed: int = 0
    """Calls with another index, or with none in the log."""

    @property
    def used(self) -> str:
        """The indices of the log, in words."""
        return ", ".join("?" if index is None else str(index) for index in self.shape.solutions)

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "shape": str(self.key or ""), "outcome": self.outcome, "calls": self.shape.times, "missed": self.missed,
            "tuned": list(self.tuned), "used": list(self.shape.solutions), "command": self.shape.call.text,
        }  # fmt: skip


def verify(entries: Iterable[Entry], shapes: Iterable[Shape]) -> list[Verified]:
    """Each shape of a log with what became of its entry."""
    known = by_key(entries)
    return [_one(known, shape) for shape in shapes]


def _one(known: Mapping[Key, list[Entry]], shape: Shape) -> Verified:
    key = shape.call.key
    tuned = tuple(dict.fromkeys(entry.solution for entry in known.get(key, ()))) if key else ()
    if not tuned:
        return Verified(shape, key, "untuned", ())
    missed = sum(count for index, count in shape.solutions.items() if index not in tuned)
    said = any(index is not None and index not in tuned for index in shape.solutions)
    outcome: Outcome = "missed" if said else "unknown" if missed else "tuned"
    return Verified(shape, key, outcome, tuned, missed)
