"""`register_subcommand`: a subcommand of AMD's Primus is a task here, unchanged.

    from primus.cli.registry import register_subcommand

    @register_subcommand("inspect")
    def inspect(args, unknown_args):
        "Print what each rank got."
        print(args.command, unknown_args)

Name the file in primus.yaml (`plugins: [./inspect.py]`) or put it into ~/.config/primus/plugins.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import wraps
from typing import Any

from primus_core.plugins.contracts import Scope
from primus_core.plugins.dropped_in import WorkerCall

__all__ = ["register_subcommand"]

Subcommand = Callable[[argparse.Namespace, list[str]], Any]
"""`args` has the `command`; `unknown_args` are all words behind it. What it returns is ignored, as ever."""


def register_subcommand(name: str, *, scope: Scope = "rank") -> Callable[[Subcommand], Subcommand]:
    """Make a function `(args, unknown_args)` the task `name`, on every rank as ever, or as `scope` says.

    `raise SystemExit(N)` is the exit code. The function stays callable as it is.
    """

    def mark(function: Subcommand) -> Subcommand:
        @wraps(function)
        def task(call: WorkerCall) -> int:
            function(argparse.Namespace(command=name), list(call.words))
            return 0

        function.__primus_task__ = (name, scope, task)  # type: ignore[attr-defined]  # read by `registration.load`
        return function

    return mark
