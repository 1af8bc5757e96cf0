"""A figure: a number with its unit and where it is from. What nobody recorded has a reason in place of a number."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Figure", "percentile", "unknown"]


@dataclass(frozen=True, slots=True)
class Figure:
    """One number of a report."""

    title: str
    value: float | None
    unit: str = ""
    source: str = ""
    """The file and the fields that it follows from."""
    why: str = ""
    """Why there is no value; empty: there is one."""

    @property
    def is_known(self) -> bool:
        """Whether there is a value."""
        return self.value is not None


def unknown(title: str, unit: str, why: str) -> Figure:
    """A figure that has no value."""
    return Figure(title, None, unit, why=why)


def percentile(ordered: Sequence[float], share: float) -> float:
    """The value below which `share` of `ordered` (sorted, not empty) lies, between the two nearest by distance."""
    place = share * (len(ordered) - 1)
    low, high = math.floor(place), math.ceil(place)
    if low == high:
        return ordered[low]
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)
