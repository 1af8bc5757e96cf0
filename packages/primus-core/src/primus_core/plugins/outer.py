"""What an outer runtime is: a place that holds another runtime. Plugins find these in `plugins.contracts`, too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

from primus_core import variables
from primus_core.plan.plan import PlannedFile, Requirement, RunPlace, Step, Variable
from primus_core.request.request import global_words

if TYPE_CHECKING:
    import argparse

    from primus_core.request.arguments import Parser
    from primus_machine.facts import Facts
    from primus_machine.host import HostRoot

__all__ = ["Cleaning", "Elsewhere", "OuterCall", "OuterPlan", "OuterRuntime"]


class OuterCall(NamedTuple):
    """A layer that runs another command line of Primus somewhere else: its options, and what is to run there."""

    args: argparse.Namespace
    facts: Facts
    place: RunPlace
    inner: tuple[str, ...]
    """The command line of the layer inside, without `primus`."""
    reads: tuple[str, ...]
    """Absolute paths of what the inner layers read: settings, scripts, data."""
    writes: tuple[str, ...]
    """Folders that they write in, beside the run's workspace; one may have to be made."""
    variables: tuple[Variable, ...]
    """What the inner layers must find in their environment, beside what the person has in theirs."""
    max_restarts: int = 0
    """The restart options of the inner layer."""
    framework: str = ""
    """The backend of the task inside, where it has one."""
    takes_over: bool = False
    """As the task inside says it: `TaskPlan.takes_over`."""

    @property
    def of_job(self) -> tuple[Variable, ...]:
        """The variables for the script of a job that starts a layer of this runtime (`again`). None of them is secret:
        what a person keeps secret goes with the environment, where the scheduler passes that on.
        """
        return tuple(v for v in self.variables if v.name not in variables.OF_STEPS and not v.secret)

    def again(self, *words: str) -> tuple[str, ...]:
        """The command line, without `primus`, that runs what is inside in a layer with these words: name and options.

        A job that was submitted starts the tasks on its nodes so.
        """
        front, rest = global_words(self.inner)
        if rest[0] != "replay":
            return (*front, *words, "--", *rest)
        end = 3 if "--force" in rest[2:3] else 2  # `replay RUN` names the runtimes behind it
        return (*front, *rest[:end], *words, "--", *rest[end:])


class OuterPlan(NamedTuple):
    """How an outer layer runs the inner command."""

    steps: tuple[Step, ...]
    """The last of them runs it, or submits it to a scheduler; those before prepare."""
    files: tuple[PlannedFile, ...] = ()
    requires: tuple[Requirement, ...] = ()
    notes: tuple[str, ...] = ()
    withheld: frozenset[str] = frozenset()
    """Variables that the process shall not get: its words say them. One that submits gets no `variables.OF_STEPS`."""
    max_restarts: int = 0
    """The number of consecutive restarts without progress after which Primus gives up."""


class OuterRuntime(Protocol):
    """A place that holds another runtime: a container, a scheduler's job. Entry-point group `primus.runtimes`.

    One that runs on machines which nobody knows yet has a method `inside` (`Elsewhere`), too.
    """

    name: str
    epilog: str
    holds: frozenset[str]
    """Names of the runtimes that can run inside."""

    def add_arguments(self, parser: Parser) -> None:
        """Declare the options that stand before `--`."""

    def wrap(self, call: OuterCall) -> OuterPlan:
        """The inner command as processes of this machine."""


@runtime_checkable
class Elsewhere(Protocol):
    """What an outer runtime has that runs on other machines: what is inside is planned without knowing them."""

    def inside(self, args: argparse.Namespace, environ: Mapping[str, str]) -> Mapping[str, str]:
        """The variables that the layer inside will find on the first of them, as far as they are known."""


@runtime_checkable
class Cleaning(Protocol):
    """What a runtime with an option `--clean` has, which takes no task: it takes away what dead runs left."""

    def clean(self, args: argparse.Namespace, host: HostRoot, *, dry_run: bool) -> int:
        """Take it away, or with `dry_run` say what would go; the exit code."""
