"""The launchers that are installed, each imported when a plan names it."""

from __future__ import annotations

import importlib
from functools import cache
from typing import cast

from primus_core.contracts.launcher import Launcher
from primus_core.errors import MachineError, suggestion
from primus_core.installed import packages

__all__ = ["find"]

_GROUP = "primus.launchers"


@cache
def find(name: str) -> Launcher:
    """The launcher of that name.

    Raises:
        MachineError: it is not installed, or cannot be imported.
    """
    known = {entry.name: entry for entry in packages.entry_points(_GROUP)}
    if not (entry := known.get(name)):
        why = f"installed: {', '.join(sorted(known)) or 'none'}"
        fix = suggestion(name, known) or "install the package that brings it"
        raise MachineError(f"the launcher '{name}' is not installed here", why=why, fix=fix)
    try:
        return cast("Launcher", getattr(importlib.import_module(entry.module), entry.attribute))
    except Exception as error:  # a package of others may raise anything
        raise MachineError(
            f"the launcher '{name}' of {entry.package} {entry.version} cannot be loaded",
            why=f"{type(error).__name__}: {error}",
            fix="reinstall or remove it; `primus plugins` lists the state of all",
        ) from error
