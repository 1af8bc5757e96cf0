"""Adaptations of a framework, which a backend's worker applies where they are needed, before it imports more.

Each says why it exists, when it is needed, and for which versions; a test fails when one is no longer needed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from primus_train.kit import versions

__all__ = ["Patch", "apply_needed", "summary"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Patch:
    """One adaptation of one framework."""

    id: str
    reason: str
    needed: Callable[[], bool]
    """Whether this machine needs it."""
    apply: Callable[[], None]
    link: str = ""
    since: tuple[int, int]
    before: tuple[int, int]
    """The versions of the framework that it was written for: `since` <= version < `before`."""


def summary(applied: Sequence[Patch], where: str) -> str:
    """One line for the log; empty: none was applied. The reasons stand in the files of the package `where`."""
    return f"patched for this machine: {', '.join(patch.id for patch in applied)} (why: {where})" if applied else ""


def apply_needed(patches: Sequence[Patch], version: str) -> tuple[Patch, ...]:
    """Apply, in their order, what this machine and this version of the framework need; what that was."""
    pair = versions.release(version)[:2]
    needed = tuple(  # asked before one changes the answer
        patch for patch in patches if patch.since <= pair < patch.before and patch.needed()
    )
    for patch in needed:
        patch.apply()
    return needed
