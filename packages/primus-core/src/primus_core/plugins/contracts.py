"""What a plugin is: the shapes that a task and a runtime have (a backend: `primus_train.backend`). All pure.

Planning calls only what stands here, and nothing here may write, start or install anything, or import a
framework: that happens later, in the process that the plan describes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

from primus_core.config import submission
from primus_core.plan.plan import Distributed, PlannedFile, Requirement, RunPlace, Scope, Step, Variable, Worker

if TYPE_CHECKING:
    import argparse

    from primus_core.plugins.catalogue import Catalogue
    from primus_core.plugins.outer import Cleaning, Elsewhere, OuterCall, OuterPlan, OuterRuntime
    from primus_core.request.arguments import Parser
    from primus_machine.facts import Facts

__all__ = [
    "Cleaning",
    "Command",
    "ConfigActions",
    "Described",
    "Elsewhere",
    "OuterCall",
    "OuterPlan",
    "OuterRuntime",
    "Runtime",
    "RuntimeCall",
    "RuntimePlan",
    "Scope",
    "Task",
    "TaskCall",
    "TaskPlan",
]


class TaskCall(NamedTuple):
    """One request for a task, with what is known when it is planned."""

    words: tuple[str, ...]
    """The task's arguments as typed, without its name."""
    args: argparse.Namespace
    """The same, parsed by what `add_arguments` declared."""
    facts: Facts
    distributed: Distributed
    place: Callable[[str, str], RunPlace]
    """`place(workspace, exp_name)` names the run directory; workspace "": the site's, or `output`. It makes nothing."""
    catalogue: Catalogue
    """The installed plugins and the system config, with every layer that the command line names."""
    elsewhere: bool = False
    """The worker runs where other things are installed (in a container): what is missing here may be there."""
    command: tuple[str, ...] = ()
    """The whole command as it was typed, `primus` first, for messages; empty: it is not known."""

    def file(self, path: str) -> str:
        """The file to read for `path`, a file that `TaskPlan.reads` names: in a submitted job, the copy of it."""
        return submission.path(path, self.facts.environ)


class TaskPlan(NamedTuple):
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
    """Words that are worth adding to the typed command for a next run, after a good end."""
    metrics_rank: int = 0
    framework: str = ""
    """The backend, where the task has one: GPU profiles have variables for some."""
    model: str = ""
    """What is trained, as the experiment calls it; `primus runs list` shows it."""
    folder: str = ""
    """Where the request's own files are: a `hooks/` beside them belongs to it."""
    reads: tuple[str, ...] = ()
    """Files that were read to plan this (`TaskCall.file`). A container shows them inside, a submission copies them."""
    continues: str = ""
    """The directory of the earlier run that it continues; empty: none."""
    loads: tuple[str, ...] = ()
    """Checkpoints and code, files or folders, that the worker loads: the planner refuses what is not trusted."""
    takes_over: bool = False
    """A node that ends well has done what is left of all: one that fails stops no other, and the run may succeed."""


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


class Command(Protocol):
    """A command without a runtime: `primus <name> ...`. Entry-point group `primus.commands`: a module, or an object.

    Its one-line help is the first line of its module's docstring.
    """

    def parser(self) -> Parser:
        """Its parser, for completion; `Parser.first_words` are what the first word may be."""

    def run(self, words: Sequence[str], layer: str) -> int | None:
        """Do what `words` ask for; the exit code (None: 0). `layer`: of `primus --config FILE <name>`; empty: none.

        A `PrimusError` becomes a message: `RequestError` is exit code 2, `MachineError` 3.
        """


class ConfigActions(Protocol):
    """Actions of `primus config` that a package adds: a module. Entry-point group `primus.config`."""

    EXAMPLES: str
    """Lines for the help."""

    def add(self, actions: argparse._SubParsersAction[Parser]) -> None:
        """Add parsers, each with `run`, a function from the parsed arguments to the exit code, among its defaults."""

    def complete(self, parsers: Mapping[str, Parser]) -> None:
        """Say what may be named, for completion. `parsers`: those of all actions by name."""


@runtime_checkable
class Described(Protocol):
    """What a task has whose request is a file: `primus env explain --config FILE` asks it."""

    def environment(self, path: str, environ: Mapping[str, str]) -> tuple[str, tuple[Variable, ...]]:
        """The framework of the request in the file `path`, and the variables that it sets."""


def __getattr__(name: str) -> Any:
    """What outer runtimes need: a launch without one does not load it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from primus_core.plugins import outer

    return getattr(outer, name)
