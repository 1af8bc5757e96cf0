"""Benchmarks of one device: GEMM (matrix multiplication).

Each benchmark is a row of `BENCHMARKS`; its worker module does the measuring, so nothing heavy is imported here.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass

from primus_bench import gemm_options
from primus_core.plugins.contracts import Scope, TaskCall, TaskPlan

__all__ = ["BENCH", "BENCHMARKS", "Bench", "Benchmark"]


@dataclass(frozen=True, slots=True)
class Benchmark:
    """One benchmark: `bench <name> ...`."""

    name: str
    help: str
    declare: Callable[[argparse.ArgumentParser], None]
    plan: Callable[[TaskCall], TaskPlan]
    epilog: str


BENCHMARKS = (
    Benchmark(
        "gemm", "How fast matrices are multiplied.", gemm_options.declare, gemm_options.plan, gemm_options.EPILOG
    ),
)


class Bench:
    """The task `bench`."""

    name = "bench"
    scope: Scope = "run"
    epilog = "examples:\n  primus direct -- bench gemm -M 8192\n  primus direct -- bench gemm --help"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare one subcommand per benchmark."""
        names = ",".join(row.name for row in BENCHMARKS)
        choices = parser.add_subparsers(dest="benchmark", required=True, metavar=f"{{{names}}}")
        for row in BENCHMARKS:
            sub = choices.add_parser(row.name, help=row.help, description=row.help, epilog=row.epilog)
            row.declare(sub)

    def plan(self, call: TaskCall) -> TaskPlan:
        """The plan of the benchmark that was named."""
        row = next(row for row in BENCHMARKS if row.name == call.args.benchmark)
        return row.plan(call)


BENCH = Bench()
