"""What the metrics of a training say once it runs steadily. `primus ci` and `bench train` mean the same by it."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from primus_bench.measure import machine
from primus_machine import facts
from primus_machine.host import HostRoot

__all__ = ["Row", "Steady", "device_name", "steady", "values"]

Row = Mapping[str, Any]
"""Of `metrics.jsonl` (docs/metrics.md)."""


class Steady(NamedTuple):
    """The steps that count."""

    rows: Sequence[Row]

    def values(self, name: str) -> list[float]:
        """Of one figure, of all steps that have it."""
        return values(self.rows, name)

    def median(self, name: str) -> float | None:
        """The same as one number."""
        found = self.values(name)
        return statistics.median(found) if found else None


def steady(rows: Sequence[Row]) -> Steady:
    """All but the first fifth, and the first step: these compile, read and allocate. A step that was done again counts
    once.
    """
    latest = list({row["step"]: row for row in rows}.values())
    return Steady(latest[max(len(latest) // 5, min(1, len(latest) - 1)) :])


def values(rows: Sequence[Row], name: str) -> list[float]:
    """Of one figure, of all rows that have it."""
    return [float(row[name]) for row in rows if row.get(name)]


def device_name(host: HostRoot | None = None) -> str:
    """What the training ran on, for people."""
    host = host or HostRoot()
    return facts.read(host).gpu_model or machine.cpu_name(host)
