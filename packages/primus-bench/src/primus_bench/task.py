"""Measure how fast a GPU, a node or the network is.

Each benchmark is an entry point, and its worker does the measuring: nothing heavy is imported here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from primus_bench.contract import GROUP, Benchmark
from primus_core.installed import joined
from primus_core.plugins.contracts import Scope, TaskCall, TaskPlan
from primus_core.request.arguments import Parser
from primus_machine import packages

__all__ = ["BENCH", "Bench"]


class Bench:
    """The task `bench`."""

    name = "bench"
    scope: Scope = "run"
    epilog = """examples:
  primus direct -- bench gemm -M 8192
  GPUS_PER_NODE=2 primus direct -- bench comm --op all_reduce
  primus direct -- bench gemm --help"""

    def add_arguments(self, parser: Parser) -> None:
        """Declare one subcommand per installed benchmark, without importing it."""
        entries = {entry.name: entry for entry in joined.of_group(GROUP)}
        helps = packages.module_summaries({entry.module for entry in entries.values()})
        choices = parser.add_subparsers(
            dest="benchmark",
            required=True,
            metavar=f"{{{','.join(entries)}}}",
            parser_class=_Options,
            prog=parser.prog,  # argparse would format a usage to find it
        )
        for name, entry in entries.items():
            sub = choices.add_parser(name, help=helps[entry.module] or f"(from {entry.package})")
            sub.benchmark = name

    def plan(self, call: TaskCall) -> TaskPlan:
        """The plan of the benchmark that was named."""
        return _load(call.args.benchmark).plan(call)


def _load(name: str) -> Benchmark:
    found: Benchmark = joined.load(GROUP, name)
    return found


class _Options(Parser):
    """The options of one benchmark, which is imported when somebody asks for them."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.benchmark = ""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse does it."""
        self._declare()
        return super().parse_known_args(args, namespace)

    def below(self, words: Sequence[str]) -> Parser:
        """Itself, with its options."""
        self._declare()
        return super().below(words)

    def _declare(self) -> None:
        if name := self.benchmark:
            self.benchmark = ""
            benchmark = _load(name)
            benchmark.add_arguments(self)
            self.epilog = benchmark.epilog


BENCH = Bench()
