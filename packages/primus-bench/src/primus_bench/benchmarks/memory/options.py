"""Measure the bandwidth of memory, and of transfers between host and GPU.

The options of `bench memory` and its plan. The worker parses its arguments with the same.
"""

from __future__ import annotations

import argparse
from typing import NamedTuple

from primus_bench import options
from primus_bench.contract import SuiteMachine, SuitePart
from primus_bench.options import RankBenchmark
from primus_core.errors import RequestError
from primus_core.plan.plan import RunPlace
from primus_core.plugins.contracts import TaskCall

__all__ = ["DTYPES", "INSIDE", "MEMORY", "Settings", "declare", "settle"]

INSIDE = ("copy", "triad")
_TRANSFERS = ("h2d", "d2h", "h2d-pageable", "d2h-pageable")
DTYPES = ("fp64", "fp32", "bf16")
_EPILOG = """examples:
  primus direct -- bench memory
  primus direct -- bench memory --op triad --size 4GiB --duration 10
  GPUS_PER_NODE=2 primus direct -- bench memory --device cpu --op copy

Each GPU of the node is measured, all at the same time. On a CPU, GPUS_PER_NODE is the number of processes."""


class Settings(NamedTuple):
    """What will be measured, every default filled in."""

    operations: tuple[str, ...]
    size: int
    """Bytes of each array; 0: as many as exceed the caches."""
    dtype: str
    device: str
    duration_s: float
    outputs: tuple[str, ...]
    json: bool

    def words(self) -> tuple[str, ...]:
        """The settings as arguments of the worker."""
        words = options.repeated("--op", self.operations)
        words += ["--size", str(self.size)] if self.size else []
        words += ["--dtype", self.dtype, "--device", self.device, "--duration", repr(self.duration_s)]
        return (*words, *options.output_words(self.outputs, json=self.json))


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `bench memory`."""
    parser.add_argument("--op", dest="operations", action="append", choices=(*INSIDE, *_TRANSFERS), default=[],
                        help="measure only this operation (repeatable; default: all that the device has)")  # fmt: skip
    parser.add_argument("--size", type=options.byte_count, default=0, metavar="SIZE",
                        help="bytes of each array, such as 1GiB (default: more than the caches hold)")  # fmt: skip
    parser.add_argument("--dtype", choices=DTYPES, default="fp64", help="type of the elements (default: fp64)")
    options.add_duration(parser)
    options.add_common(parser)


def settle(args: argparse.Namespace, gpu_here: bool) -> Settings:
    """The settings in `args` for a machine with or without a GPU.

    Raises:
        RequestError: a transfer to a GPU is to be measured on the CPU.
    """
    device = options.device_for(args.device, gpu_here)
    operations = tuple(dict.fromkeys(args.operations)) or (INSIDE if device == "cpu" else INSIDE + _TRANSFERS)
    if device == "cpu" and (transfers := [name for name in operations if name in _TRANSFERS]):
        raise RequestError(f"--op {transfers[0]} needs a GPU, but the device is the CPU",
                           why="it measures transfers between host and GPU",
                           fix=f"choose {' or '.join(INSIDE)}")  # fmt: skip
    return Settings(operations, args.size, args.dtype, device, args.duration, tuple(args.output), args.json)


class Memory(RankBenchmark[Settings]):
    """The benchmark `memory`."""

    name, epilog = "memory", _EPILOG

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """The options."""
        declare(parser)

    def settle(self, args: argparse.Namespace, call: TaskCall, place: RunPlace) -> Settings:
        """See `settle`."""
        return settle(args, bool(call.facts.gpus))

    def suite(self, machine: SuiteMachine, *, quick: bool) -> SuitePart:
        """All that the device has."""
        small = ("--size", "64MiB") if machine.device == "cpu" and quick else ()
        return SuitePart((*small, *options.for_suite(machine, quick=quick)))


MEMORY = Memory()
