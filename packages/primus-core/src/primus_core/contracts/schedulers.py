"""The schedulers that are installed, each imported when it is first asked."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, cast

from primus_core.contracts.scheduler import Scheduler
from primus_core.errors import MachineError
from primus_core.installed import packages

__all__ = ["all_of_them", "families", "find", "launch", "of_run", "started", "title_of"]

_GROUP = "primus.schedulers"
_KERNEL = "primus-core"


def all_of_them() -> tuple[Scheduler, ...]:
    """Each that is installed, by name. One that cannot be imported is another error's matter."""
    return tuple(scheduler for name in sorted(_entries()) if (scheduler := _loaded(name)))


def find(name: str) -> Scheduler:
    """The one of that name.

    Raises:
        MachineError: it is not installed, or cannot be imported.
    """
    if name in _entries() and (found := _loaded(name)):
        return found
    known = ", ".join(sorted(_entries())) or "none"
    raise MachineError(f"the scheduler '{name}' cannot be asked here", why=f"installed: {known}",
                       fix="install the package that the run was started with")  # fmt: skip


def of_run(known: Mapping[str, Any]) -> Scheduler | None:
    """The scheduler of the run with that metadata; None: it is not here.

    Records of 0.1 name none; there was only that of the kernel's own package.
    """
    about = known.get("scheduler")
    name = about.get("name") if isinstance(about, Mapping) else None
    if isinstance(name, str) and name:
        return _loaded(name)
    return next((_loaded(name) for name, entry in _entries().items() if entry.package == _KERNEL), None)


def title_of(known: Mapping[str, Any]) -> str:
    """What people call the scheduler of the run with that metadata."""
    scheduler = of_run(known)
    return scheduler.title if scheduler else "its scheduler"


def started(environ: Mapping[str, str]) -> Scheduler | None:
    """The scheduler that started this process on a node of a job; None: none did."""
    return next((scheduler for scheduler in all_of_them() if scheduler.started(environ)), None)


def launch(nodes: object) -> str:
    """How a command begins that starts a task on so many nodes, behind `primus`, with the first that is installed."""
    return next((scheduler.launch.format(nodes=nodes) for scheduler in all_of_them()), "direct")


def families() -> tuple[str, ...]:
    """Beginnings of the names of all their variables."""
    return tuple(family for scheduler in all_of_them() for family in scheduler.families)


@packages.once
def _entries() -> dict[str, packages.EntryPoint]:
    return {entry.name: entry for entry in packages.entry_points(_GROUP)}


_known: dict[str, Scheduler | None] = {}


def _loaded(name: str) -> Scheduler | None:
    if name not in _known and (entry := _entries().get(name)):
        try:
            _known[name] = cast("Scheduler", getattr(importlib.import_module(entry.module), entry.attribute))
        except Exception:  # a package of others may raise anything; without it, its scheduler is not here
            _known[name] = None
    return _known.get(name)
