"""What a launcher is: how the ranks of a node start, and what it says of those that ended. Entry-point group
`primus.launchers`: the entry point names an instance.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

from primus_core.plan.plan import Distributed, Requirement, Step, Variable
from primus_machine.facts import Facts

__all__ = ["LaunchCall", "LaunchPlan", "Launcher", "Signalled"]


class LaunchCall(NamedTuple):
    """The ranks to start on a node."""

    rank: tuple[str, ...]
    """What a rank runs, behind its Python: `-m primus_core.programs.rank MODULE ARGS`."""
    facts: Facts
    place: Distributed
    environ: Mapping[str, str]
    """The person's: their word holds over a launcher's."""
    grace_s: float = 8.0
    """The time from SIGTERM to SIGKILL that the ranks have. A launcher must not kill them earlier."""


class LaunchPlan(NamedTuple):
    """How they start."""

    step: Step
    """One process of the kind `worker`. It starts so many `ranks`, ends all where one fails, and hands its environment
    on: they write to the pipes of the supervisor. `first_rank` is the global rank of the first.
    """
    environment: tuple[Variable, ...] = ()
    requires: tuple[Requirement, ...] = ()


class Signalled(NamedTuple):
    """A rank that a signal ended, or that exited with a code above 0."""

    rank: int
    """The global one."""
    signal: int
    """0: it exited."""
    host: str
    """As the launcher calls the node."""
    exit_code: int = 0
    """Of one that exited. It counts where the rank has recorded no exception."""


class Launcher(Protocol):
    """One of them."""

    name: str
    """As its entry point is called, and as a task's `Worker` and saved plans have it."""
    one_per_node: bool
    """It starts one process on a node, which drives all devices there: that is the node's only rank."""
    reports: bool
    """It says in its output how each rank ended. Where it does not, its process is the rank."""

    @property
    def families(self) -> tuple[str, ...]:
        """Beginnings of the names of its variables, beside `RANK`, `LOCAL_RANK`, `WORLD_SIZE` and `LOCAL_WORLD_SIZE`.

        They say where a rank stands: a run that a rank starts gets none of them. A plain attribute will do.
        """

    def plan(self, call: LaunchCall) -> LaunchPlan:
        """The process of this node, and what it needs. Pure: it starts nothing."""

    def signalled(self, output: str) -> Iterable[Signalled]:
        """The ranks that a signal ended or that failed, in the order in which it saw them; not what they say."""
