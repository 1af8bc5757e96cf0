"""What a benchmark is. Entry-point group `primus.benchmarks`: the entry point names an instance."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import NamedTuple, Protocol, runtime_checkable

from primus_core.plugins.contracts import TaskCall, TaskPlan

__all__ = ["GROUP", "SUITE", "Benchmark", "InSuite", "SuiteMachine", "SuitePart"]

GROUP = "primus.benchmarks"
SUITE = "suite"
"""The benchmark that runs all others."""


class Benchmark(Protocol):
    """One benchmark: `primus direct -- bench <name> ...`.

    Its entry point's name is what people type; its one-line help is the first line of its module's docstring. Each
    command that plans it imports that module, and none of the others: it must not import a framework. Its worker does.
    """

    epilog: str
    """Examples for `--help`."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the options."""

    def plan(self, call: TaskCall) -> TaskPlan:
        """What to run. Raises `RequestError` (exit 2) for whatever is wrong with the options.

        `Worker.launcher` says how often the worker runs: `single`, one process; `torchrun`, one for each device.
        """


class SuiteMachine(NamedTuple):
    """What `bench suite` measures."""

    device: str
    """`cpu`, or `cuda`, torch's word for any GPU: for `--device`."""
    ranks: int
    """Over all nodes."""
    nodes: int
    dtypes: frozenset[str]
    """In which the GPU multiplies, as its row in the table of GPUs says; empty: a CPU, or an unknown GPU."""
    has_module: Callable[[str], bool]
    """Whether Python finds a module of that name."""
    has_command: Callable[[str], bool]
    """Whether PATH has a command of that name."""


class SuitePart(NamedTuple):
    """What a benchmark measures in a suite."""

    words: tuple[str, ...] = ()
    """Its options, as on the command line."""
    skipped: str = ""
    """Why it does not fit this machine; empty: it does."""


@runtime_checkable
class InSuite(Protocol):
    """What a `Benchmark` has that takes part in `bench suite`.

    Its worker runs with the launcher `torchrun` (on all ranks) or `single` (on one), and its plan has no steps, files
    or variables of its own. It writes its result as `<name>.json` to `place.directory` of its plan
    (`primus_bench.report.document`); without that file, the suite shows only whether it passed.
    """

    def suite(self, machine: SuiteMachine, *, quick: bool) -> SuitePart:
        """What to measure there: in a few minutes, or with `quick` in some seconds."""
