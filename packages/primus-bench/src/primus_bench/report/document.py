"""The result of a benchmark as one JSON object, the same for all benchmarks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from primus_bench.report.steadiness import steadiness
from primus_machine.files import plain_json

__all__ = ["SCHEMA", "Case", "Document", "as_json"]

SCHEMA = 3
"""It changes when an old reader would misread a new document."""


@dataclass(frozen=True, slots=True)
class Case:
    """One thing that was measured. One with a wrong result has no samples, no median and no value."""

    name: str
    parameters: Mapping[str, Any]
    samples_s: Sequence[float]
    """Seconds of iterations, in their order (`measure.timing.thinned`)."""
    median_s: float | None
    unit: str
    """Of `value`."""
    value: float | None
    """The figure by which to compare it with another run; None where nobody knows it."""
    verified: bool
    error: Any
    """How far the result is from the right one: a number, or what is wrong in words; None: nothing is."""
    derived: Mapping[str, Any] = field(default_factory=dict)
    rank: int = 0
    """The one that took longest, where several measured."""
    node: str = ""
    unsteady: str = ""
    """Why its times were not steady, beside what the samples show."""

    def record(self) -> dict[str, Any]:
        """A flat one, for table and CSV: without lists."""
        figures = {name: value for name, value in self.derived.items() if not isinstance(value, list)}
        median_ms = None if self.median_s is None else 1000 * self.median_s
        return {**self.parameters, "median_ms": median_ms, **figures, "rank": self.rank, "node": self.node,
                "slowest": f"{self.rank} {self.node}"}  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "name": self.name, "parameters": dict(self.parameters), "samples": list(self.samples_s),
            "median": self.median_s, "unit": self.unit, "value": self.value, "verified": self.verified,
            "error": self.error, "derived": dict(self.derived), "rank": self.rank, "node": self.node,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Document:
    """What one run of a benchmark found."""

    benchmark: str
    parameters: Mapping[str, Any]
    """The options, every default filled in."""
    machine: Mapping[str, Any]
    device: Mapping[str, Any]
    clocks: Mapping[str, Any]
    versions: Mapping[str, str]
    method: Mapping[str, Any]
    """How it was measured: what timed it, the warm-up, the buffers."""
    cases: Sequence[Case]
    notes: Sequence[str] = ()

    @property
    def steadiness(self) -> Mapping[str, Any]:
        """Whether the machine was steady meanwhile."""
        return steadiness([(case.name, case.samples_s, case.unsteady) for case in self.cases])

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "schema": SCHEMA, "benchmark": self.benchmark, "parameters": dict(self.parameters),
            "machine": dict(self.machine), "device": dict(self.device), "clocks": dict(self.clocks),
            "versions": dict(self.versions), "method": dict(self.method),
            "steadiness": dict(self.steadiness),
            "cases": [case.to_dict() for case in self.cases], "notes": list(self.notes),
        }  # fmt: skip


def as_json(found: Mapping[str, Any]) -> str:
    """A document, and what else a benchmark has to say, for a person or a file."""
    text = plain_json.dumps(found, indent=2, ensure_ascii=False)
    return text.encode(errors="backslashreplace").decode()  # bytes of a path that are no text, as JSON spells them
