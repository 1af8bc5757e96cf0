"""What a plugin is: the shapes that a task and a runtime have (a training backend: `primus_core.backend`). All pure.

Planning calls only what stands here, and nothing here may write, start or install anything, or import a
framework: that happens later, in the process that the plan describes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from primus_core.plan import Distributed, PlannedFile, Requirement, RunPlace, Scope, Step, Variable, Worker

if TYPE_CHECKING:
    import argparse

    from primus_core.arguments import Parser
    from primus_core.facts import Facts

__all__ = ["Runtime", "RuntimeCall", "RuntimePlan", "Scope", "Task", "TaskCall", "TaskPlan"]


class TaskCall(NamedTuple):
    """One request for a task, with what is known when it is planned."""

    words: tuple[str, ...]
    """The task's arguments as typed, without its name."""
    args: argparse.Namespace
    """The same, parsed by what `add_arguments` declared."""
    facts: Facts
    distributed: Distributed
    place: Callable[[str, str], RunPlace]
    """`place(workspace, exp_name)` names the run directory. It makes nothing."""


@dataclass(frozen=True, slots=True)
class TaskPlan:
    """What a task wants done; the runtime turns it into processes."""

    place: RunPlace
    worker: Worker
    prepare: tuple[Step, ...] = ()
    """Processes that run one after the other, once per node, before the worker."""
    environment: tuple[Variable, ...] = ()
    files: tuple[PlannedFile, ...] = ()
    requires: tuple[Requirement, ...] = ()
    config: Mapping[str, Any] | None = None
    notes: tuple[str, ...] = ()
    next_steps: tuple[str, ...] = ()
    metrics_rank: int = 0
    framework: str = ""
    """The backend, where the task has one: GPU profiles have variables for some."""
    model: str = ""
    """What is trained, as the experiment calls it; `primus runs list` shows it."""
    folder: str = ""
    """Where the request's own files are: a `hooks/` beside them belongs to it."""


class Task(Protocol):
    """A thing to do: `primus <runtime> -- <name> ...`. Entry-point group `primus.tasks`.

    The entry point names an instance. Its one-line help is the first line of its module's docstring.
    """

    name: str
    scope: Scope
    epilog: str
    """Examples for `--help`."""

    def add_arguments(self, parser: Parser) -> None:
        """Declare the arguments. `parser` is argparse's, with `rest_to` for open-ended ones; import little."""

    def plan(self, call: TaskCall) -> TaskPlan:
        """What to run. Raises `RequestError` (exit 2) for whatever is wrong with the arguments."""


class RuntimeCall(NamedTuple):
    """One layer of a request: its options, and what comes behind it."""

    args: argparse.Namespace
    facts: Facts
    distributed: Distributed
    task: TaskPlan
    scope: Scope


class RuntimePlan(NamedTuple):
    """How a runtime runs a task: the processes to start, in order, and what they need."""

    steps: tuple[Step, ...]
    environment: tuple[Variable, ...] = ()
    """Variables that say where the ranks stand; the person's own are in them already."""
    requires: tuple[Requirement, ...] = ()


class Runtime(Protocol):
    """A place to run a task in. Entry-point group `primus.runtimes`."""

    name: str
    epilog: str

    def add_arguments(self, parser: Parser) -> None:
        """Declare the options that stand before `--`."""

    def distributed(self, args: argparse.Namespace, facts: Facts) -> Distributed:
        """Where this node stands in the job, validated."""

    def plan(self, call: RuntimeCall) -> RuntimePlan:
        """The task's preparation and worker as processes."""
