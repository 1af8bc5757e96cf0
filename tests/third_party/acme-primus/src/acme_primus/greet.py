"""Greet from the worker, a task of another team."""

from __future__ import annotations

import sys

from primus_core.plan.plan import Worker
from primus_core.plugins.contracts import Scope, TaskCall, TaskPlan
from primus_core.request.arguments import Parser


class Greet:
    """Task `greet`."""

    name = "greet"
    scope: Scope = "run"
    epilog = "examples:\n  primus direct -- greet --whom world"

    def add_arguments(self, parser: Parser) -> None:
        """`greet --whom NAME`."""
        parser.add_argument("--whom", default="world", choices=("world", "acme"))

    def plan(self, call: TaskCall) -> TaskPlan:
        """One process that prints."""
        return TaskPlan(call.place("output", "greet"), Worker("acme_primus.greet", (call.args.whom,), "single"))


GREET = Greet()

if __name__ == "__main__":
    print("hello", sys.argv[1])
