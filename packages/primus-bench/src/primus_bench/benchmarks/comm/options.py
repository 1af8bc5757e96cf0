"""Measure collectives between GPUs, processes and nodes.

The options of `bench comm` and its plan. The worker parses its arguments with the same.
"""

from __future__ import annotations

import argparse
from typing import NamedTuple

from primus_bench import options
from primus_bench.benchmarks.comm.sizes import sizes
from primus_bench.benchmarks.comm.traffic import OPERATIONS
from primus_bench.contract import SuiteMachine, SuitePart
from primus_bench.options import RankBenchmark
from primus_core.errors import RequestError
from primus_core.plan.plan import Distributed, RunPlace
from primus_core.plugins.contracts import TaskCall

__all__ = ["COMM", "DTYPES", "SCOPES", "Settings", "declare", "settle"]

DTYPES = ("bf16", "fp16", "fp32", "int32")
SCOPES = ("job", "intra-node", "inter-node")
_SIZES = {"cpu": "1KiB:16MiB:x4", "cuda": "1KiB:1GiB:x4"}
_MOST = 1_000_000
_FEWEST = 2
_EPILOG = """examples:
  GPUS_PER_NODE=2 primus direct -- bench comm --device cpu --sizes 1KiB:1MiB:x4
  primus direct -- bench comm --op all_reduce --sizes 1MiB:8GiB:x2 --dtype bf16
  primus slurm -N 2 -- bench comm --scope intra-node --scope inter-node --output comm.md

The number of ranks on each node is that of its GPUs, or GPUS_PER_NODE."""


class Settings(NamedTuple):
    """What will be measured, every default filled in."""

    operations: tuple[str, ...]
    scopes: tuple[str, ...]
    sizes: tuple[int, ...]
    dtype: str
    device: str
    """`cpu` (gloo) or `cuda` (NCCL, RCCL)."""
    iterations: int
    warm_up: int
    overlap: bool
    timeout_s: float
    outputs: tuple[str, ...]
    json: bool

    def words(self) -> tuple[str, ...]:
        """The settings as arguments of the worker."""
        words = options.repeated("--op", self.operations) + options.repeated("--scope", self.scopes)
        words += ["--sizes", ",".join(map(str, self.sizes)), "--dtype", self.dtype, "--device", self.device]
        words += ["--iterations", str(self.iterations), "--warm-up", str(self.warm_up)]
        words += ["--timeout", repr(self.timeout_s), *["--overlap"] * self.overlap]
        return (*words, *options.output_words(self.outputs, json=self.json))


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `bench comm`."""
    parser.add_argument("--op", dest="operations", action="append", choices=OPERATIONS, default=[],
                        help="measure this collective (repeatable; default: all)")  # fmt: skip
    parser.add_argument("--sizes", type=sizes, metavar="SIZES",
                        help="4KiB,1MiB or 1KiB:1GiB:x2 (default: 1KiB:1GiB:x4; on a CPU, up to 16MiB)")  # fmt: skip
    parser.add_argument("--dtype", choices=DTYPES, default="fp32", help="type of the elements (default: fp32)")
    parser.add_argument("--scope", dest="scopes", action="append", choices=SCOPES, default=[],
                        help="job: all ranks together (default); intra-node: the ranks of each node; inter-node: those "
                        "with the same local rank (repeatable)")  # fmt: skip
    parser.add_argument("--iterations", type=_count, default=20, metavar="N", help="timed iterations (default: 20)")
    parser.add_argument("--warm-up", type=_count, default=5, metavar="N", help="iterations before them (default: 5)")
    parser.add_argument("--overlap", action="store_true",
                        help="also measure each while a GEMM that takes as long runs")  # fmt: skip
    parser.add_argument("--timeout", type=options.seconds, default=300.0, metavar="SECONDS",
                        help="give up if a collective takes longer (default: 300)")  # fmt: skip
    options.add_common(parser)


def settle(args: argparse.Namespace, gpu_here: bool) -> Settings:
    """The settings in `args` for a machine with or without a GPU."""
    device = options.device_for(args.device, gpu_here)
    return Settings(
        operations=tuple(dict.fromkeys(args.operations)) or OPERATIONS,
        scopes=tuple(dict.fromkeys(args.scopes)) or SCOPES[:1],
        sizes=args.sizes or sizes(_SIZES[device]),
        dtype=args.dtype,
        device=device,
        iterations=args.iterations,
        warm_up=args.warm_up,
        overlap=args.overlap,
        timeout_s=args.timeout,
        outputs=tuple(args.output),
        json=args.json,
    )


class Comm(RankBenchmark[Settings]):
    """The benchmark `comm`."""

    name, epilog = "comm", _EPILOG

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """The options."""
        declare(parser)

    def settle(self, args: argparse.Namespace, call: TaskCall, place: RunPlace) -> Settings:
        """See `settle`."""
        return settle(args, bool(call.facts.gpus))

    def suite(self, machine: SuiteMachine, *, quick: bool) -> SuitePart:
        """A small and a large message, in the job, in each node and between nodes."""
        if machine.ranks < _FEWEST:
            return SuitePart(skipped="one rank sends nothing to anybody (GPUS_PER_NODE is the number of ranks)")
        within = ["intra-node"] * (machine.ranks > machine.nodes) + ["inter-node"]
        scopes = options.repeated("--scope", ["job", *within] if machine.nodes > 1 else [])
        sizes = {"cpu": "64KiB,4MiB", "cuda": "1MiB,256MiB"}[machine.device]
        few = ("--op", "all_reduce", "--op", "all_to_all") if quick else ()
        return SuitePart((*few, *scopes, "--sizes", sizes, "--device", machine.device))

    def notes(self, settings: Settings, call: TaskCall) -> tuple[str, ...]:
        """See `_notes`."""
        return _notes(settings, call.distributed)


COMM = Comm()


def _notes(settings: Settings, place: Distributed) -> tuple[str, ...]:
    """What to know of the ranks that are planned.

    Raises:
        RequestError: they are too few for what is asked.
    """
    if place.tentative:
        return ()
    if place.nnodes == 1 and "inter-node" in settings.scopes:
        raise RequestError("--scope inter-node needs two nodes", why="the job has one",
                           fix="primus slurm -N 2 -- bench comm --scope inter-node")  # fmt: skip
    if place.world_size == 1:
        return ("one rank sends nothing to anybody: set GPUS_PER_NODE to the number of ranks",)
    return ()


def _count(text: str) -> int:
    return options.whole(text, 1, _MOST)
