"""A difference between layouts that a framework is known to have: what `verify` says where one looks like it."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["KnownDifference"]


class KnownDifference(NamedTuple):
    """One row of a verifier."""

    axis: str
    """The layout has it, with a degree of 2 or more."""
    differs: str
    """A regular expression for the name of a parameter that differs."""
    has: str
    """The same for a parameter that the model has, whether it differs or not."""
    what: str
    """What it is, with a reference."""
