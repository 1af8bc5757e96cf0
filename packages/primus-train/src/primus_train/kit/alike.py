"""Small numbers that parallel layouts divide exactly as they divide large ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

__all__ = ["BATCH", "alike", "batch_of", "degrees_of", "refuse_remainder"]

BATCH = 8
"""Sequences in a step of a small training, unless a layout needs more."""
_LARGEST_BATCH = 256


def alike(real: int, least: int, degrees: Iterable[int], multiple: int = 1) -> int:
    """Return the smallest number from `least` to `real` that the same of `degrees` divide as divide `real`.

    `multiple`: it is one of this number, too. Without such a number: `real`.
    """
    wanted = _divided(real, degrees)
    first = -(-least // multiple) * multiple
    return next((one for one in range(first, real, multiple) if _divided(one, wanted) == wanted), real)


def _divided(number: int, degrees: Iterable[int]) -> dict[int, bool]:
    return {degree: number % degree == 0 for degree in degrees}


def degrees_of(layouts: Sequence[Mapping[str, int]], *axes: str) -> set[int]:
    """Return, of each layout, the product of the degrees of `axes`."""
    return {math.prod(layout.get(axis, 1) for axis in axes) for layout in layouts}


def batch_of(layouts: Sequence[Mapping[str, int]], unit: Callable[[Mapping[str, int]], int]) -> int:
    """Return the smallest multiple of `BATCH` that the `unit` of every layout divides, if it is not too large."""
    batch = BATCH
    for layout in layouts:
        wanted = math.lcm(batch, unit(layout))
        batch = wanted if wanted <= _LARGEST_BATCH else batch
    return batch


def refuse_remainder(batch: int, unit: int) -> None:
    """Refuse a layout that does not divide the batch.

    Raises:
        ValueError: it would need a larger one than `batch_of` gives, alone or beside the other layouts.
    """
    if batch % unit:
        needs = f"it needs a multiple of {unit} sequences in a step"
        raise ValueError(f"{needs}, and verify chose {batch} for all layouts together, of at most {_LARGEST_BATCH}")
