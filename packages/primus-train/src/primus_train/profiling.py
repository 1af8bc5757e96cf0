"""`--profile STEPS`: which steps the framework's own profiler traces, in no framework's words.

A backend that can has a method `profiling(steps, directory)`: its framework's settings that trace these steps of a run
in `directory`. They count as typed on the command line; what a person sets there wins.
"""

from __future__ import annotations

import re
from argparse import ArgumentTypeError, Namespace
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from primus_core.errors import RequestError

if TYPE_CHECKING:
    from primus_core.config.document import Document
    from primus_core.request.arguments import Parser

__all__ = ["TRACES", "ProfiledSteps", "add_argument", "added", "asked_of", "parse", "refuse_late", "settings"]

TRACES = "traces"
"""The folder of traces in a run directory, where the framework lets one choose."""
_FLAG = "--profile"


class ProfiledSteps(NamedTuple):
    """The steps `first` to `last`, both traced; the first step of a training is 1."""

    first: int
    last: int

    def __str__(self) -> str:
        return f"{self.first}:{self.last}" if self.last > self.first else str(self.first)

    @property
    def number(self) -> int:
        """How many they are."""
        return self.last - self.first + 1


def parse(text: str) -> ProfiledSteps:
    """For `type=`: `10:13` are the steps 10 to 13, `5` is step 5.

    Raises:
        ArgumentTypeError: it is neither.
    """
    found = re.fullmatch(r"([0-9]{1,9})(?::([0-9]{1,9}))?", text)
    steps = ProfiledSteps(int(found[1]), int(found[2] or found[1])) if found else None
    if not steps or steps.first < 1 or steps.last < steps.first:
        raise ArgumentTypeError(f"'{text}' names no steps: write 5, or 10:13 for the steps 10 to 13")
    return steps


def add_argument(parser: Parser) -> None:
    """Declare `--profile`."""
    steps = "trace these steps with the framework's profiler: 10:13, or 5"
    parser.add_argument(_FLAG, type=parse, metavar="STEPS", help=steps)


_Method = Callable[[ProfiledSteps, str], Mapping[str, Any]]
"""`Backend.profiling`."""


def settings(name: str, method: _Method | None, steps: ProfiledSteps, directory: str) -> Document:
    """The settings that trace these steps in the framework called `name`.

    Raises:
        RequestError: the backend cannot.
    """
    from primus_core.config.document import Document

    if method is None:
        raise RequestError(
            f"{name} does not support {_FLAG}",
            why="its backend has no settings for a profiler",
            fix="use the framework's own settings",
        )
    found = method(steps, directory)
    flat = Document(dict(found), {(name,): f"command line: {_FLAG} {steps}" for name in found})
    return flat.nested()


def asked_of(args: Namespace) -> ProfiledSteps | None:
    """The steps that were asked for; None: none were, or by a command that has no `--profile`."""
    found: ProfiledSteps | None = getattr(args, "profile", None)
    return found


def added(typed: Document, backend: Any, args: Namespace, directory: str) -> Document:
    """What is typed as settings, over those that `--profile` means to the framework, where it was given.

    Raises:
        RequestError: the backend cannot.
    """
    if not (steps := asked_of(args)):
        return typed
    return typed.merged_onto(settings(backend.name, getattr(backend, "profiling", None), steps, directory))


def refuse_late(steps: ProfiledSteps | None, config: Mapping[str, Any]) -> None:
    """Refuse steps of which there is no trace: a profiler writes it when a further step begins.

    Raises:
        RequestError: training ends before.
    """
    asked = config.get("hyperparameters", {}).get("steps")
    if steps and isinstance(asked, int) and steps.last >= asked:
        raise RequestError(
            f"{_FLAG} {steps}: training ends at step {asked}",
            why="the profiler writes the trace when a further step begins",
            fix=f"profile steps before {asked}, or train longer",
        )
