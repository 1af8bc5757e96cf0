"""What an action of `data` is, and the node that it runs on."""

from __future__ import annotations

import argparse
from typing import NamedTuple, Protocol

from primus_core.plan.plan import Requirement
from primus_core.request.arguments import Parser

__all__ = ["Action", "Here"]


class Here(NamedTuple):
    """The process that an action runs in."""

    node_rank: int = 0
    nodes: int = 1
    run_dir: str = ""
    """Where a run has its files; empty: it is no run, but the command `primus data`."""


class Action(Protocol):
    """`primus data <action> ...`, and `primus <runtime> -- data <action> ...`. Its module imports nothing heavy.

    The help of an action is the first line of its module's docstring.
    """

    name: str
    epilog: str
    """Examples for `--help`."""
    is_shared: bool
    """Several nodes do it together; otherwise, node 0 does it alone.

    An action may also have `takes_over = True`: a node of it that ends well has done what failed nodes left
    (`TaskPlan.takes_over`).
    """

    def add_arguments(self, parser: Parser) -> None:
        """Declare the arguments."""

    def check(self, args: argparse.Namespace, cwd: str) -> tuple[Requirement, ...]:
        """What must be there when it runs. Relative paths are relative to `cwd`. Reads nothing.

        Raises:
            RequestError: arguments are wrong, or contradict each other.
        """

    def run(self, args: argparse.Namespace, here: Here) -> int:
        """Do it; the exit code.

        Raises:
            PrimusError: it cannot be done; or it was done in a run, and what it found is a failure of the run.
        """
