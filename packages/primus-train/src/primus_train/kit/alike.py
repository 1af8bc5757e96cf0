"""Small numbers that parallel layouts divide exactly as they divide large ones."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

__all__ = ["alike", "degrees_of"]


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
