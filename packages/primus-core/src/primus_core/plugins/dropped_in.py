"""`@register_task`: one dropped-in file is a command at once (docs/plugins.md).

The function runs in the worker process; its return value is the exit code (None: 0). Planning reads such a file
as text and never runs it, except for the command that names one of its tasks.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, get_args

from primus_core.plan.plan import Requirement, Worker
from primus_core.plan.programs import OWN_TASK
from primus_core.plugins.contracts import Scope, TaskCall, TaskPlan
from primus_core.request import subparsers
from primus_machine.files import own_code

if TYPE_CHECKING:
    from primus_core.request.arguments import Parser

__all__ = ["FunctionTask", "WorkerCall", "declared", "load", "register_task"]

_DECORATORS = ("register_task", "register_subcommand")


@dataclass(frozen=True, slots=True)
class WorkerCall:
    """What a registered function gets: its words, and where it runs."""

    words: tuple[str, ...]
    rank: int
    world_size: int
    run_dir: str


Function = Callable[[WorkerCall], int | None]


@dataclass(frozen=True, slots=True)
class FunctionTask:
    """A task made from a function."""

    name: str
    scope: Scope
    function: Function
    path: str
    epilog: str = ""
    check: Callable[[Sequence[str]], object] | None = None
    """Refuses wrong words before anything starts, where it is known which are right."""

    def add_arguments(self, parser: Parser) -> None:
        """All words belong to the function."""
        parser.usage = f"{parser.prog} [words passed to the function as call.words]"
        parser.rest_to("words", checked=False)

    def plan(self, call: TaskCall) -> TaskPlan:
        """Run the function in a worker: on every rank, or in one process, as its scope says."""
        if self.check:
            self.check(call.words)
        args = (self.path, self.name, *call.words)
        launcher = "torchrun" if self.scope == "rank" else "single"
        return TaskPlan(
            place=call.place("", self.name.replace(" ", "-")),
            worker=Worker(OWN_TASK, args, launcher),
            requires=(Requirement("file", self.path, "it contains the task's code: restore it, or name another file"),),
        )


def register_task(name: str, *, scope: Scope = "run") -> Callable[[Function], Function]:
    """Make the decorated function the task `name` (one or two words), run per `rank`, per `node` or per `run`."""
    if not 1 <= len(name.split()) <= 2:
        raise ValueError(f"a task's name has one or two words, not {name!r}")
    if scope not in get_args(Scope):
        raise ValueError(f"a task's scope is one of {', '.join(get_args(Scope))}, not {scope!r}")

    def mark(function: Function) -> Function:
        function.__primus_task__ = (name, scope)  # type: ignore[attr-defined]  # read by `load`
        return function

    return mark


def declared(tree: ast.Module) -> list[tuple[str, str]]:
    """The (name, help) of each task in a file's tree."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    named = [(name, f) for f in functions for d in f.decorator_list if (name := _registered(d))]
    return [(name, (ast.get_docstring(f) or "").partition("\n")[0]) for name, f in named] + subparsers.declared(tree)


def _registered(decorator: ast.expr) -> str:
    if not isinstance(decorator, ast.Call) or not decorator.args:
        return ""
    called = getattr(decorator.func, "id", getattr(decorator.func, "attr", ""))
    first = decorator.args[0]
    return (
        first.value
        if called in _DECORATORS and isinstance(first, ast.Constant) and isinstance(first.value, str)
        else ""
    )


def load(path: str) -> dict[str, FunctionTask]:
    """Run the file and return its tasks by name. Whatever it raises comes through."""
    tasks: dict[str, FunctionTask] = {}
    made = own_code.module(path)
    for value in vars(made).values():
        if marked := getattr(value, "__primus_task__", None):
            name, scope, *adapted = marked
            tasks[name] = FunctionTask(name, scope, adapted[0] if adapted else value, path)
    for name, _ in subparsers.declared(own_code.parsed(path)):
        if found := subparsers.of(made, name):
            tasks[name] = _of_subparsers(found, path)
    return tasks


def _of_subparsers(found: subparsers.Subcommand, path: str) -> FunctionTask:
    def run(call: WorkerCall) -> int:
        found.run(call.words)
        return 0

    return FunctionTask(found.name, "rank", run, path, epilog=found.help(), check=found.parse)
