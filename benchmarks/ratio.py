"""Measuring in pairs: A B A B ..., since the machine's speed drifts, and the median of the ratios (or differences)."""

from __future__ import annotations

import operator
import statistics
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Row", "paired"]


@dataclass(frozen=True)
class Row:
    """One line of the table: Primus divided by its peer."""

    what: str
    against: str
    ratios: tuple[float, ...]
    goal: float
    at_least: bool = False

    @property
    def ratio(self) -> float:
        """The median."""
        return statistics.median(self.ratios)

    @property
    def low(self) -> float:
        """The smallest."""
        return min(self.ratios)

    @property
    def high(self) -> float:
        """The largest."""
        return max(self.ratios)

    @property
    def met(self) -> bool:
        """Whether the median meets the goal."""
        return self.ratio >= self.goal if self.at_least else self.ratio <= self.goal


def paired(
    ours: Callable[[], float],
    theirs: Callable[[], float],
    repetitions: int,
    compare: Callable[[float, float], float] = operator.truediv,
) -> tuple[float, ...]:
    """Ratios ours/theirs (or what `compare` makes of them) of `repetitions` pairs, after one that warms the caches."""
    ours(), theirs()
    return tuple(compare(ours(), theirs()) for _ in range(repetitions))
