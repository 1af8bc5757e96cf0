"""The options of `bench gemm` and the plan that follows from them. The worker parses its arguments with the same."""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace

from primus_bench.gemm_problem import DTYPES, Problem
from primus_core.errors import RequestError
from primus_core.plan.plan import Requirement, Worker
from primus_core.plugins.contracts import TaskCall, TaskPlan

__all__ = ["DEVICES", "ENGINES", "EPILOG", "SUFFIXES", "Settings", "declare", "plan", "settle"]

ENGINES = ("torch", "triton")
DEVICES = ("auto", "cpu", "cuda")
SUFFIXES = (".md", ".csv", ".json")

EPILOG = """examples:
  primus direct -- bench gemm -M 8192
  primus direct -- bench gemm -M 4096 -N 14336 -K 4096 --dtype fp8 --engine all
  primus direct -- bench gemm -M 8192 --model llama3.1_8B
  primus direct -- bench gemm -M 8192 --duration 30 --output gemm.md --output gemm.csv"""

_FP8_STEP = 16
"""torch's fp8 multiplication takes N and K in steps of this many elements."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What will be measured, every default filled in."""

    problems: tuple[Problem, ...]
    engines: tuple[str, ...]
    device: str
    """`cpu` or `cuda`; ROCm devices are `cuda` too, as torch calls them."""
    duration_s: float
    seed: int
    outputs: tuple[str, ...]
    json: bool
    notes: tuple[str, ...]

    def words(self) -> tuple[str, ...]:
        """The settings as arguments of the worker."""
        p = self.problems[0]
        sizes = [word for one in self.problems for word in ("--shape", f"{one.name}={one.m}x{one.n}x{one.k}")]
        words = ["-M", str(p.m), *(sizes if p.name else ["-N", str(p.n), "-K", str(p.k)]), "--dtype", p.dtype]
        words += ["--trans-a"] * p.trans_a + ["--trans-b"] * p.trans_b
        words += ["--engine", "all" if len(self.engines) > 1 else self.engines[0], "--device", self.device]
        words += ["--duration", repr(self.duration_s), "--seed", str(self.seed)]
        for path in self.outputs:
            words += ["--output", path]
        return tuple(words + ["--json"] * self.json)


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `bench gemm`."""
    size = "positive whole number"
    parser.add_argument("-M", "--M", type=_size, required=True, metavar="ROWS", help=f"rows of A and C ({size})")
    parser.add_argument("-N", "--N", type=_size, metavar="COLUMNS", help=f"columns of B and C ({size}; default: M)")
    parser.add_argument("-K", "--K", type=_size, metavar="DEPTH", help=f"columns of A, rows of B ({size}; default: M)")
    parser.add_argument("--model", metavar="MODEL",
                        help="a model's matrices (`primus models list`) with M tokens, instead of N and K")  # fmt: skip
    parser.add_argument("--matrix", action="append", default=[], metavar="NAME",
                        help="only this one of them (`primus models show MODEL`); may be given again")  # fmt: skip
    # what --model comes to, for the worker: the plan says all sizes
    parser.add_argument("--shape", action="append", default=[], type=_shape, help=argparse.SUPPRESS)
    parser.add_argument("--dtype", choices=DTYPES, default="bf16", help="type of A and B (default: bf16)")
    parser.add_argument("--trans-a", action="store_true", help="A is stored transposed (K x M)")
    parser.add_argument("--trans-b", action="store_true", help="B is stored transposed (N x K)")
    parser.add_argument("--engine", choices=(*ENGINES, "all"), default="torch",
                        help="torch: the vendor's library; triton: Primus's own kernel (default: torch)")  # fmt: skip
    parser.add_argument("--duration", type=_seconds, default=2.0, metavar="SECONDS",
                        help="how long each engine is measured, after the warm-up (default: 2)")  # fmt: skip
    parser.add_argument("--device", choices=DEVICES, default="auto",
                        help="auto: a GPU where there is one; ROCm GPUs are cuda too (default: auto)")  # fmt: skip
    parser.add_argument("--output", type=_file, action="append", default=[], metavar="FILE",
                        help=f"write the result there too ({', '.join(SUFFIXES)}); may be given again")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    parser.add_argument("--seed", type=_seed, default=0, metavar="NUMBER", help="seed of the data (default: 0)")


def settle(args: argparse.Namespace, gpu_here: bool, model_files: Sequence[str] = ()) -> Settings:
    """The settings in `args` for a machine with or without a GPU; `model_files`: a person's own models.

    Raises:
        RequestError: options that contradict each other.
    """
    device, notes = _device(args, gpu_here)
    engines, left_out = _engines(args.engine, device)
    problems, changed = _problems(args, model_files)
    return Settings(
        problems, engines, device, args.duration, args.seed, tuple(args.output), args.json, notes + left_out + changed
    )


def plan(call: TaskCall) -> TaskPlan:
    """One worker process that measures, with every default filled in."""
    cwd, place = call.facts.cwd, call.place("output", "bench-gemm")
    args = argparse.Namespace(**vars(call.args))
    # the run directory keeps the result too, so that `gemm.json` stands beside the plan that made it
    args.output = [os.path.join(cwd, path) for path in args.output] + [os.path.join(place.directory, "gemm.json")]
    settings = settle(args, bool(call.facts.gpus), call.catalogue.system.model_files)
    return TaskPlan(
        place=place,
        worker=Worker(module="primus_bench.gemm", args=settings.words(), launcher="single"),
        requires=_requirements(settings.engines),
        notes=settings.notes,
        reads=(args.model,) if args.model else (),
    )


def _requirements(engines: Sequence[str]) -> tuple[Requirement, ...]:
    modules = ["torch"] + ["triton"] * ("triton" in engines)
    return tuple(Requirement("module", name, fix=f"pip install 'primus-bench[{name}]'") for name in modules)


def _device(args: argparse.Namespace, gpu_here: bool) -> tuple[str, tuple[str, ...]]:
    reason = "--engine triton" if args.engine == "triton" else "--dtype fp8" if args.dtype == "fp8" else ""
    if reason and args.device == "cpu":
        raise RequestError(
            f"{reason} needs a GPU, but --device is cpu",
            why="a CPU can only imitate it, and the speed of an imitation says nothing",
            fix="leave out --device; a CPU takes --engine torch with --dtype bf16, fp16 or fp32",
        )
    device = args.device if args.device != "auto" else "cuda" if gpu_here or reason else "cpu"
    if device == "cpu" or gpu_here:
        return device, ()
    # no error: the plan may be made on a login node, or the driver may hide what torch will find
    return device, ("no GPU was found on this machine; without one this ends with exit code 3",)


def _engines(engine: str, device: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    if engine != "all":
        return (engine,), ()
    if device == "cpu":
        return ("torch",), ("triton is left out: it needs a GPU",)
    return ENGINES, ()


def _problems(args: argparse.Namespace, files: Sequence[str]) -> tuple[tuple[Problem, ...], tuple[str, ...]]:
    asked = _asked(args, files)
    if args.dtype != "fp8" or args.engine == "triton":
        return asked, ()
    for problem in asked:
        if problem.trans_a or problem.n % _FP8_STEP or problem.k % _FP8_STEP:
            raise RequestError(f"torch cannot multiply this in fp8: {problem}",
                               why=f"it takes A as M x K, and N and K that are multiples of {_FP8_STEP}",
                               fix="choose such sizes without --trans-a, or --engine triton")  # fmt: skip
    if asked[0].trans_b:
        return asked, ()
    stored = tuple(replace(problem, trans_b=True) for problem in asked)
    return stored, ("fp8: B is stored transposed (N x K), the only layout that torch multiplies",)


def _asked(args: argparse.Namespace, files: Sequence[str]) -> tuple[Problem, ...]:
    m = args.M
    if args.shape:
        return tuple(Problem(m, n, k, args.dtype, args.trans_a, args.trans_b, name) for name, m, n, k in args.shape)
    if not (args.model or args.matrix):
        return (Problem(m, args.N or m, args.K or m, args.dtype, args.trans_a, args.trans_b),)
    if not args.model:
        raise RequestError("--matrix is one of a model", fix="add --model; `primus models list` names them")
    if args.N or args.K or args.trans_a:
        raise RequestError("a model has its own N, K and layout", fix="leave out -N, -K and --trans-a, or --model")
    from primus_bench import gemm_model  # pydantic, 100 ms, only where a model is named

    return gemm_model.problems(args.model, args.matrix, m, args.dtype, files)


def _shape(text: str) -> tuple[str, int, int, int]:
    name, _, sizes = text.rpartition("=")
    m, n, k = map(_size, sizes.split("x"))
    return name, m, n, k


def _size(text: str) -> int:
    return _whole(text, 1, 2**31 - 1)


def _seed(text: str) -> int:
    return _whole(text, 0, 2**63 - 1)


def _whole(text: str, least: int, most: int) -> int:
    # `isascii`: int() also reads digits of other scripts; the length keeps int() from refusing in its own words
    value = int(text) if text.isascii() and text.isdigit() and len(text) < 25 else -1
    if not least <= value <= most:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number from {least} to {most}")
    return value


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of seconds greater than 0")
    return value


def _file(text: str) -> str:
    name = os.path.basename(text)
    if os.path.splitext(name)[1].lower() not in SUFFIXES:
        raise argparse.ArgumentTypeError(f"'{text}' does not end in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}")
    return text
