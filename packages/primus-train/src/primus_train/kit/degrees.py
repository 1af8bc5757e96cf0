"""Which other degrees of parallelism an error proposes: those that pass the checks of the layout itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from primus_core.errors import Mistakes

__all__ = ["OTHER_RANKS", "either", "narrow", "ones", "passes"]

T = TypeVar("T")

OTHER_RANKS = "start another number of ranks (GPUS_PER_NODE, or more nodes; `config`: --gpus-per-node, --nodes)"


def passes(check: Callable[[T], None], layout: T) -> bool:
    """Return whether a check refuses nothing of a layout."""
    found = Mistakes()
    with found:
        check(layout)
    return not found


def narrow(layouts: list[T], check: Callable[[T], None]) -> list[T]:
    """Return those that pass a check; all, where none does: another setting is wrong then."""
    return [one for one in layouts if passes(check, one)] or layouts


def either(degrees: Iterable[int]) -> str:
    """Return `1, 2 or 4`."""
    *before, last = map(str, degrees)
    return f"{', '.join(before)} or {last}" if before else last


def ones(degrees: Mapping[str, int], *, fit: bool) -> str:
    """Return what a single rank leaves of these settings. `fit`: with more ranks, they are possible."""
    *before, last = (name for name, degree in degrees.items() if degree > 1)
    return f"set {' and '.join([', '.join(before), last] if before else [last])} to 1" + f", or {OTHER_RANKS}" * fit
