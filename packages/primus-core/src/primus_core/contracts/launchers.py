"""The launchers that are installed, each imported when a plan names it."""

from __future__ import annotations

from functools import cache
from typing import cast

from primus_core.contracts.launcher import Launcher
from primus_core.installed import joined
from primus_machine.errors import PrimusError

__all__ = ["ONE_PER_NODE", "SINGLE", "families", "find"]

ONE_PER_NODE, SINGLE = "one-per-node", "single"
"""The names of two launchers that `direct` knows: one process for all GPUs of a node, and one without a launcher."""

_GROUP = "primus.launchers"


@cache
def find(name: str) -> Launcher:
    """The launcher of that name.

    Raises:
        RequestError: two packages have one.
        MachineError: it is not installed, or cannot be imported.
    """
    return cast("Launcher", joined.load(_GROUP, name))


def families() -> tuple[str, ...]:
    """Beginnings of the names of all their variables."""
    names = dict.fromkeys(entry.name for entry in joined.of_group(_GROUP))
    return tuple(family for name in names for family in _families(name))


def _families(name: str) -> tuple[str, ...]:
    try:
        return find(name).families
    except PrimusError:  # of one that cannot be imported, no rank has any
        return ()
