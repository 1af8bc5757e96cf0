"""Options that several benchmarks have, and what they come to."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

from primus_bench.contract import SuiteMachine
from primus_bench.options.values import seconds, seed
from primus_core.plan.plan import Requirement
from primus_core.plugins.contracts import TaskCall

__all__ = [
    "add_common",
    "add_duration",
    "add_outputs",
    "add_seed",
    "device_for",
    "for_suite",
    "output_words",
    "outputs",
    "parsed",
    "repeated",
    "requirements",
]

DEVICES = ("auto", "cpu", "cuda")
SUFFIXES = (".md", ".csv", ".json", ".html")


def add_common(parser: argparse.ArgumentParser) -> None:
    """Where to measure, and what becomes of the result."""
    parser.add_argument("--device", choices=DEVICES, default="auto",
                        help="auto: a GPU if there is one (default); cuda: also for ROCm")  # fmt: skip
    add_outputs(parser)


def add_outputs(parser: argparse.ArgumentParser) -> None:
    """What becomes of the result."""
    parser.add_argument("--output", type=_file, action="append", default=[], metavar="FILE",
                        help=f"also write the result to FILE ({', '.join(SUFFIXES)}; repeatable)")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")


def outputs(call: TaskCall, directory: str, name: str) -> list[str]:
    """The files to write: those of `--output`, and `name` in the run directory, beside the plan that made it."""
    return [os.path.join(call.facts.cwd, path) for path in call.args.output] + [os.path.join(directory, name)]


def output_words(paths: Sequence[str], *, json: bool) -> list[str]:
    """`--output` and `--json` as arguments of a worker."""
    return [word for path in paths for word in ("--output", path)] + ["--json"] * json


def requirements(*modules: str) -> tuple[Requirement, ...]:
    """Modules that a worker needs, each with the extra of this package that brings it."""
    return tuple(Requirement("module", name, fix=f"pip install 'primus-bench[{name}]'") for name in modules)


def add_duration(parser: argparse.ArgumentParser) -> None:
    """How long to measure."""
    parser.add_argument("--duration", type=seconds, default=2.0, metavar="SECONDS",
                        help="measure each for SECONDS after the warm-up (default: 2)")  # fmt: skip


def for_suite(machine: SuiteMachine, *, quick: bool) -> tuple[str, ...]:
    """Options that most benchmarks have in a suite."""
    return ("--device", machine.device, "--duration", "0.3" if quick else "2")


def add_seed(parser: argparse.ArgumentParser) -> None:
    """Which data."""
    parser.add_argument("--seed", type=seed, default=0, metavar="NUMBER", help="seed of the data (default: 0)")


def device_for(asked: str, gpu_here: bool) -> Literal["cpu", "cuda"]:
    """The kind of device that `--device` means on a machine with or without a GPU."""
    return "cuda" if asked == "cuda" or (asked == "auto" and gpu_here) else "cpu"


def repeated(flag: str, values: Iterable[str]) -> list[str]:
    """An option once for each value, as arguments of a worker."""
    return [word for value in values for word in (flag, value)]


def parsed(benchmark: str, declare: Callable[[argparse.ArgumentParser], None],
           argv: Sequence[str]) -> argparse.Namespace:  # fmt: skip
    """The arguments of a benchmark's worker."""
    parser = argparse.ArgumentParser(prog=f"python -m primus_bench.benchmarks.{benchmark}.worker", allow_abbrev=False)
    declare(parser)
    return parser.parse_args(argv)


def _file(text: str) -> str:
    name = os.path.basename(text)
    if os.path.splitext(name)[1].lower() not in SUFFIXES:
        raise argparse.ArgumentTypeError(f"'{text}' does not end in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}")
    return text
