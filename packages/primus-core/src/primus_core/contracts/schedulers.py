"""The schedulers that are installed, each imported when it is first asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from primus_core.installed import homes, joined
from primus_machine import packages, variables
from primus_machine.errors import MachineError

if TYPE_CHECKING:
    from primus_core.contracts.scheduler import Scheduler
    from primus_core.journal.record import RunRecord
    from primus_machine.facts import Facts

__all__ = ["all_of_them", "families", "find", "launch", "notes", "of_run", "started", "title_of"]

_GROUP = "primus.schedulers"


def all_of_them() -> tuple[Scheduler, ...]:
    """Each that is installed; those of our own packages last, since a site that brings one uses that.

    One that is broken is left out (`left_out`).

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


def of_run(known: RunRecord) -> Scheduler | None:
    """The scheduler of the run with that record; None: it is not here.

    Records of 0.1 name none; there was only one.
    """
    from primus_core.journal.record import SCHEDULER_OF_0_1

    return _loaded(known.scheduler_name or SCHEDULER_OF_0_1)


def title_of(known: RunRecord) -> str:
    """What people call the scheduler of the run with that record."""
    scheduler = of_run(known)
    return scheduler.title if scheduler else "its scheduler"


def started(environ: Mapping[str, str]) -> Scheduler | None:
    """The scheduler that started this process on a node of a job; None: none did.

    Raises:
        MachineError: another layer of Primus started it, and the one that may have placed it here cannot be imported;
            or it is one of several nodes of a job whose scheduler is not installed. The node would take itself for the
            only one.
    """
    found = next((scheduler for scheduler in all_of_them() if scheduler.started(environ)), None)
    if not found and environ.get(variables.OUTER):
        for name in _names():
            find(name)
    if not found:
        _require_those_of(environ)
    return found


def _require_those_of(environ: Mapping[str, str]) -> None:
    """Refuse to be one of several nodes by a scheduler that is not here, unless a person says where the node stands."""
    for name, (_, sign, counts) in homes.SCHEDULERS.items():
        if name in _names() or sign not in environ or environ.get("NNODES"):
            continue
        nodes = next((environ[count] for count in counts if environ.get(count)), "1")
        if nodes != "1":
            raise MachineError(
                f"this is one of {nodes} nodes of a job, and the scheduler '{name}' is not installed here",
                why=f"{sign} is set; without the package, each node would run alone",
                fix=f"{homes.how_to_install(homes.home_of('schedulers', name))}\n"
                "or set NNODES, NODE_RANK and MASTER_ADDR on each node",
            )


def notes(facts: Facts) -> tuple[str, ...]:
    """Notes on CPUs that the job has and this process may not use, and on schedulers that are broken."""
    here = started(facts.environ) if facts.host.is_here else None
    is_bound = facts.cpu_count < facts.host.online_cpus()  # a scheduler may count more than there are
    narrowed = here.narrowed(facts.cpu_count, facts.environ) if here and is_bound else ""
    return tuple(filter(None, (narrowed, *_left_out)))


def launch(nodes: object) -> str:
    """How a command begins that starts a task on so many nodes, behind `primus`, with the first of them."""
    return next((scheduler.launch.replace("{nodes}", str(nodes)) for scheduler in all_of_them()), "direct")


def families() -> tuple[str, ...]:
    """Beginnings of the names of all their variables, and of those that are not here."""
    ours = (family for families, *_ in homes.SCHEDULERS.values() for family in families)
    return tuple(dict.fromkeys((*ours, *(family for scheduler in all_of_them() for family in scheduler.families))))


@packages.once
def _names() -> tuple[str, ...]:
    """Names, in the order in which they are asked."""
    entries = sorted(joined.of_group(_GROUP), key=lambda entry: entry.name in homes.SCHEDULERS)
    return tuple(dict.fromkeys(entry.name for entry in entries))


_known: dict[str, Scheduler | None] = {}
_left_out: list[str] = []


def _loaded(name: str) -> Scheduler | None:
    if name not in _known:
        try:
            _known[name] = find(name) if name in _names() else None
        except MachineError as error:  # without it, its scheduler is not here
            _known[name] = None
            _left_out.append(f"{error.what} and is ignored: {error.why.partition(chr(10))[0]}")
    return _known[name]
