"""Run all benchmarks that fit this machine, one after the other.

The options of `bench suite` and its plan. The worker parses its arguments with the same.
"""

from __future__ import annotations

import argparse
from typing import NamedTuple

from primus_bench import options
from primus_bench.benchmarks.suite import parts
from primus_bench.benchmarks.suite.parts import Part
from primus_bench.contract import SUITE as NAME
from primus_bench.options import RankBenchmark
from primus_core.errors import RequestError, suggestion
from primus_core.plan.plan import RunPlace
from primus_core.plugins.contracts import TaskCall
from primus_machine.errors import Mistakes

__all__ = ["SUITE", "Settings", "declare", "settle"]

_EPILOG = """examples:
  primus direct -- bench suite --quick
  primus direct -- bench suite --output suite.md --output suite.json
  primus direct -- bench suite --only gemm --only memory
  primus slurm srun -N 2 -- bench suite

Each benchmark's own result is in the run directory, for `primus bench compare` and `primus bench history`."""


class Settings(NamedTuple):
    """What will be measured, every default filled in."""

    parts: tuple[Part, ...]
    quick: bool
    device: str
    directory: str
    """Where the results of the parts are."""
    timeout_s: float
    outputs: tuple[str, ...]
    json: bool

    def words(self) -> tuple[str, ...]:
        """The settings as arguments of the worker."""
        words = options.repeated("--part", (one.word() for one in self.parts))
        words += ["--quick"] * self.quick + ["--device", self.device, "--directory", self.directory]
        words += ["--timeout", repr(self.timeout_s)]
        return (*words, *options.output_words(self.outputs, json=self.json))


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `bench suite`."""
    parser.add_argument("--quick", action="store_true", help="measure small problems for a short time")
    parser.add_argument("--only", action="append", default=[], metavar="BENCHMARK",
                        help="run only this benchmark (repeatable)")  # fmt: skip
    parser.add_argument("--skip", action="append", default=[], metavar="BENCHMARK",
                        help="skip this benchmark (repeatable)")  # fmt: skip
    parser.add_argument("--timeout", type=options.seconds, default=1800.0, metavar="SECONDS",
                        help="end a benchmark that takes longer (default: 1800)")  # fmt: skip
    # what all of them come to, for the worker
    parser.add_argument("--part", dest="parts", action="append", default=[], type=Part.of_word, help=argparse.SUPPRESS)
    parser.add_argument("--directory", default="", help=argparse.SUPPRESS)
    options.add_common(parser)


def settle(args: argparse.Namespace, gpu_here: bool) -> Settings:
    """The settings in `args` for a machine with or without a GPU."""
    return Settings(
        tuple(args.parts), args.quick, options.device_for(args.device, gpu_here), args.directory, args.timeout,
        tuple(args.output), args.json,
    )  # fmt: skip


class Suite(RankBenchmark[Settings]):
    """The benchmark `suite`."""

    name, epilog = NAME, _EPILOG

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """The options."""
        declare(parser)

    def settle(self, args: argparse.Namespace, call: TaskCall, place: RunPlace) -> Settings:
        """See `settle`; with the parts, each planned.

        Raises:
            RequestError: a benchmark is named that is not installed, or none is left.
        """
        found = settle(args, bool(call.facts.gpus))
        chosen, left_out = _chosen(args)
        here = parts.machine(call, found.device)
        planned = parts.planned(call, chosen, left_out, place, here, quick=found.quick)
        planned = tuple(one for one in planned if one.skipped != parts.NO_PART or one.name in args.only)
        if _is_here(call) and all(one.skipped for one in planned):
            why = "\n".join(f"{one.name}: {one.skipped}" for one in planned)
            raise RequestError(
                "no benchmark is left to run", why=why, fix="name one that fits this machine: --only gemm"
            )
        return found._replace(parts=planned, directory=place.directory)

    def notes(self, settings: Settings, call: TaskCall) -> tuple[str, ...]:
        """What is skipped, and why."""
        skipped = [one for one in settings.parts if one.skipped]
        return tuple(f"{one.name} is skipped: {one.skipped}" for one in skipped) if _is_here(call) else ()


SUITE = Suite()


def _is_here(call: TaskCall) -> bool:
    """Whether this plan is for this machine. Another one will be planned again, on the node or in the container."""
    return call.facts.host.is_known and not call.elsewhere


def _chosen(args: argparse.Namespace) -> tuple[list[str], dict[str, str]]:
    """The benchmarks, and those that are left out, with the reason."""
    known, mistakes = parts.names(), Mistakes()
    for flag, given in (("--only", args.only), ("--skip", args.skip)):
        for name in given:
            if name not in known:
                possible = parts.of_suite()
                fix = suggestion(name, possible) or f"choose one of {', '.join(possible)}"
                mistakes.add(RequestError(f"{flag}: no benchmark is called '{name}'", fix=fix))
    mistakes.refuse()
    chosen = [name for name in known if not args.only or name in args.only]
    return chosen, dict.fromkeys(set(args.skip), "by --skip")
