"""What changes a training because a variable asks for it, such as the stages of a tuning: entry points of packages.

Group `primus.training_modes`. The name of an entry point is the beginning of the names of its variables, and only where
one of these is set is it imported.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from typing import NamedTuple, Protocol

from primus_core.errors import MachineError, RequestError
from primus_core.installed import homes, joined
from primus_core.plan.plan import Variable
from primus_core.plugins.contracts import TaskCall, TaskPlan
from primus_core.request.arguments import Parser

__all__ = ["GROUP", "Training", "TrainingMode", "add_argument", "asked_by", "changed", "environment"]

GROUP = "primus.training_modes"
_VERIFY = "PRIMUS_VERIFY"
_HOMES = {"PRIMUS_HIPBLASLT_TUNING": "primus-bench", _VERIFY: "primus-verify"}
"""Of our own: the package to install where a variable is set and nobody knows it."""


class Training(NamedTuple):
    """The training that is planned."""

    framework: str
    model: str
    """As the experiment calls it; it may hold any letters."""
    workspace: str
    """The folder of the runs, from the root on."""
    environ: Mapping[str, str]
    """The person's environment, over the experiment's `env:`."""
    node_rank: int = 0


class TrainingMode(Protocol):
    """One of them: an instance."""

    def environment(self, training: Training) -> tuple[Variable, ...]:
        """The variables that the ranks get. Pure; raises `RequestError` (exit 2) for a wrong value."""

    def plan(self, training: Training, call: TaskCall, task: TaskPlan) -> TaskPlan:
        """The plan of the training, changed, with these variables. Pure."""


def add_argument(parser: Parser) -> None:
    """Declare the option that stands for a variable."""
    text = "first verify that the layout computes what one rank computes, and train only then"
    parser.add_argument("--verify", action="store_true", help=text)


def asked_by(args: Namespace) -> dict[str, str]:
    """Return the variables that options stand for."""
    return {_VERIFY: "1"} if getattr(args, "verify", False) else {}


def environment(training: Training) -> tuple[Variable, ...]:
    """The variables that all modes set."""
    return tuple(variable for mode in _asked(training.environ) for variable in mode.environment(training))


def changed(training: Training, call: TaskCall, task: TaskPlan) -> TaskPlan:
    """The plan of a training as the modes that are asked for have it.

    Raises:
        RequestError: a variable of one is given where nobody reads it.
    """
    _refuse_options(call.command)
    for mode in _asked(training.environ):
        task = mode.plan(training, call, task)
    return task


def _refuse_options(command: Sequence[str]) -> None:
    """`primus direct --env NAME=VALUE` sets a variable for the ranks, which is too late for a plan."""
    after = command[command.index("direct") + 1 :] if "direct" in command else ()
    for word in takewhile(lambda word: word != "--", after):
        name, equals, _ = word.removeprefix("--env=").partition("=")
        if equals and name.startswith(tuple(_beginnings())):
            why = "Primus reads it before planning"
            raise RequestError(
                f"--env: {name} cannot be set", why=why, fix=f"export {name} in the shell that runs primus"
            )


def _beginnings() -> list[str]:
    return list(dict.fromkeys((*(entry.name for entry in joined.of_group(GROUP)), *_HOMES)))


def _asked(environ: Mapping[str, str]) -> Iterator[TrainingMode]:
    """The modes with a variable that is set.

    Raises:
        MachineError: nobody here knows a variable of ours.
    """
    known = [entry.name for entry in joined.of_group(GROUP)]
    for beginning in _beginnings():
        names = sorted(name for name, value in environ.items() if name.startswith(beginning) and value)
        if names and beginning not in known:
            package = _HOMES[beginning]
            fix = homes.how_to_install(package)
            if beginning == _VERIFY:
                raise MachineError(f"--verify needs {package}, which is not installed here", fix=fix)
            raise MachineError(
                f"{names[0]} is set, but {package} is not installed here", fix=f"{fix}; or unset {names[0]}"
            )
        if names:
            mode: TrainingMode = joined.load(GROUP, beginning)
            yield mode
