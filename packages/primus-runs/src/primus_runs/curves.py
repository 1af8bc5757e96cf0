"""Two losses side by side, at steps that both runs logged. Read as a stream: a long run has millions of lines."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from statistics import median
from typing import Any, NamedTuple

from primus_core.journal import summary
from primus_core.plan.plan import METRICS

__all__ = ["Curve", "Point", "read", "side_by_side"]

_POINTS = 8
"""Enough to see the shape of a curve, few enough to read."""


class Point(NamedTuple):
    """A step of both runs."""

    step: int
    a: float
    b: float

    @property
    def difference(self) -> float:
        return self.b - self.a

    @property
    def relative(self) -> float | None:
        """Of the first run's loss."""
        return self.difference / abs(self.a) if self.a else None

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**self._asdict(), "difference": self.difference, "relative": self.relative}


@dataclass(slots=True)
class Curve:
    """What is kept of a run's metrics."""

    losses: dict[int, float] = field(default_factory=dict)
    """By step. A run that was started again has some twice: the later one led to what came after."""
    speeds: array[float] = field(default_factory=lambda: array("d"))
    last_step: int | None = None
    last_loss: float | None = None

    @property
    def tokens_per_second(self) -> float | None:
        """The median."""
        return median(self.speeds) if self.speeds else None

    def add(self, row: dict[str, Any]) -> None:
        """One line of the metrics."""
        self.last_step, self.last_loss = row["step"], row["loss"]
        self.losses.pop(row["step"], None)
        if row["loss"] is not None:  # it is where the loss is not finite
            self.losses[row["step"]] = float(row["loss"])
        if speed := row.get("tokens_per_second"):
            self.speeds.append(speed)


def read(directory: str) -> Curve:
    """The curve of the run in `directory`; empty where it logged nothing."""
    curve = Curve()
    for row in summary.stream(f"{directory}/{METRICS}"):
        curve.add(row)
    return curve


def side_by_side(a: Curve, b: Curve) -> list[Point]:
    """Some of the steps that both have, evenly spread, the first and the last among them."""
    common = sorted(a.losses.keys() & b.losses.keys())
    last = len(common) - 1
    chosen = common if last < _POINTS else [common[round(n * last / (_POINTS - 1))] for n in range(_POINTS)]
    return [Point(step, a.losses[step], b.losses[step]) for step in chosen]
