"""The schedulers that are installed, each imported when it is first asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from primus_core import variables
from primus_core.contracts.scheduler import Scheduler
from primus_core.errors import MachineError
from primus_core.installed import joined, packages

__all__ = ["all_of_them", "families", "find", "launch", "of_run", "started", "title_of"]

_GROUP = "primus.schedulers"


def all_of_them() -> tuple[Scheduler, ...]:
    """Each that is installed; those of the kernel's own package last, since a site that brings one uses that.

    One that cannot be imported is another error's matter.

    Raises:
        RequestError: two packages have one of the same name.
    """
    return tuple(scheduler for name in _names() if (scheduler := _loaded(name)))


def find(name: str) -> Scheduler:
    """The one of that name.

    Raises:
        RequestError: two packages have one.
        MachineError: it is not installed, or cannot be imported.
    """
    return cast("Scheduler", joined.load(_GROUP, name))


def of_run(known: Mapping[str, Any]) -> Scheduler | None:
    """The scheduler of the run with that metadata; None: it is not here.

    Records of 0.1 name none; there was only that of the kernel's own package.
    """
    about = known.get("scheduler")
    name = about.get("name") if isinstance(about, Mapping) else None
    return _loaded(name if isinstance(name, str) and name else _of_kernel())


def title_of(known: Mapping[str, Any]) -> str:
    """What people call the scheduler of the run with that metadata."""
    scheduler = of_run(known)
    return scheduler.title if scheduler else "its scheduler"


def started(environ: Mapping[str, str]) -> Scheduler | None:
    """The scheduler that started this process on a node of a job; None: none did.

    Raises:
        MachineError: another layer of Primus started it, and the one that may have placed it here cannot be imported:
            the node would take itself for the only one.
    """
    found = next((scheduler for scheduler in all_of_them() if scheduler.started(environ)), None)
    if not found and environ.get(variables.OUTER):
        for name in _names():
            find(name)
    return found


def launch(nodes: object) -> str:
    """How a command begins that starts a task on so many nodes, behind `primus`, with the first of them."""
    return next((scheduler.launch.format(nodes=nodes) for scheduler in all_of_them()), "direct")


def families() -> tuple[str, ...]:
    """Beginnings of the names of all their variables."""
    return tuple(family for scheduler in all_of_them() for family in scheduler.families)


@packages.once
def _names() -> tuple[str, ...]:
    """Names, in the order in which they are asked."""
    entries = sorted(joined.of_group(_GROUP), key=lambda entry: entry.package == joined.KERNEL)
    return tuple(dict.fromkeys(entry.name for entry in entries))


@packages.once
def _of_kernel() -> str:
    """The name of the kernel's own: asked for each of thousands of runs."""
    return next((one.name for one in joined.of_group(_GROUP) if one.package == joined.KERNEL), "")


_known: dict[str, Scheduler | None] = {}


def _loaded(name: str) -> Scheduler | None:
    if name not in _known:
        try:
            _known[name] = find(name)
        except MachineError:  # without it, its scheduler is not here
            _known[name] = None
    return _known[name]
