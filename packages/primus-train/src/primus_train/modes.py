"""What changes a training because a variable asks for it, such as the stages of a tuning: entry points of packages.

Group `primus.training_modes`. The name of an entry point is the beginning of the names of its variables, and only where
one of these is set is it imported.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from typing import NamedTuple, Protocol

from primus_core.errors import MachineError, RequestError
from primus_core.installed import homes, joined
from primus_core.plan.plan import Variable
from primus_core.plugins.contracts import TaskCall, TaskPlan

__all__ = ["GROUP", "Training", "TrainingMode", "changed", "environment"]

GROUP = "primus.training_modes"
_HOMES = {"PRIMUS_HIPBLASLT_TUNING": "primus-bench"}
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
            fix = f"{homes.how_to_install(package)}; or unset {names[0]}"
            raise MachineError(f"{names[0]} is set, but {package} is not installed here", fix=fix)
        if names:
            mode: TrainingMode = joined.load(GROUP, beginning)
            yield mode
