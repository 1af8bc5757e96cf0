"""Measure the speed of matrix multiplication.

The options of `bench gemm` and the plan that follows from them. The worker parses its arguments with the same.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from primus_bench import options
from primus_bench.benchmarks.gemm import requested
from primus_bench.benchmarks.gemm.problem import DTYPES, MOST, Problem
from primus_bench.contract import SuiteMachine, SuitePart
from primus_bench.options import RankBenchmark
from primus_core.errors import Mistakes, RequestError
from primus_core.plan.plan import Requirement, RunPlace
from primus_core.plugins.contracts import TaskCall

__all__ = ["BENCH_COMMAND", "ENGINES", "GEMM", "Settings", "declare", "settle"]

ENGINES = ("torch", "triton", "hipblaslt")
BENCH_COMMAND = "hipblaslt-bench"
_ON_CPU = ENGINES[:1]
_ON_CPU_ONLY = "on a CPU, use --engine torch with --dtype bf16, fp16 or fp32"
_EPILOG = """examples:
  primus direct -- bench gemm -M 8192
  primus direct -- bench gemm -M 4096 -N 14336 -K 4096 --dtype fp8 --engine all
  primus direct -- bench gemm -M 1024:16384:x2 --output gemm.csv
  primus direct -- bench gemm --model llama3.1_8B --seq-len 8192 --tp 2
  primus slurm srun -N 2 -- bench gemm -M 8192 --duration 30

Each GPU of the node is measured, all at the same time. On a CPU, GPUS_PER_NODE is the number of processes."""

_FP8_STEP = 16
"""torch's fp8 multiplication takes N and K in steps of this many elements."""


class Settings(NamedTuple):
    """What will be measured, every default filled in."""

    problems: tuple[Problem, ...]
    engines: tuple[str, ...]
    device: str
    """`cpu` or `cuda`; ROCm devices are `cuda` too, as torch calls them."""
    duration_s: float
    seed: int
    outputs: tuple[str, ...]
    json: bool
    title: str
    """Where many shapes come from; empty: they speak for themselves."""
    notes: tuple[str, ...] = ()

    def words(self) -> tuple[str, ...]:
        """The settings as arguments of the worker."""
        words = options.repeated("--shape", (problem.word() for problem in self.problems))
        words += options.repeated("--engine", self.engines) + ["--title", self.title] * bool(self.title)
        words += ["--device", self.device, "--duration", repr(self.duration_s), "--seed", str(self.seed)]
        return (*words, *options.output_words(self.outputs, json=self.json))

    def measured(self) -> Iterator[tuple[Problem, tuple[str, ...]]]:
        """Each problem with the engines that multiply it."""
        for one in self.problems:
            yield one, tuple(name for name in self.engines if name != "hipblaslt" or one.groups == 1)


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `bench gemm`."""
    sizes = "such as 8192, 1024,2048, 1024:16384:x2 or 1024:4096:+1024"
    parser.add_argument("-M", "--M", type=_sizes, metavar="ROWS", help=f"rows of A and C ({sizes})")
    parser.add_argument("-N", "--N", type=_sizes, metavar="COLUMNS", help="columns of B and C (default: M)")
    parser.add_argument("-K", "--K", type=_sizes, metavar="DEPTH", help="columns of A, rows of B (default: M)")
    grouped = "grouped GEMM: split the M rows among E matrices B, as the experts of a layer"
    parser.add_argument("--groups", type=_size, metavar="E", help=grouped)
    columns = "m, n, k[, count, dtype, trans, groups, name]"
    parser.add_argument(
        "--shapes", metavar="FILE", help=f"measure the shapes in FILE: CSV or JSON lines with {columns}"
    )
    _declare_model(parser)
    # `bench gemm 4096` is answered with the option that it lacks
    parser.add_argument("stray", nargs="*", help=argparse.SUPPRESS)
    # what all of them come to, for the worker: the plan says all shapes
    parser.add_argument("--shape", action="append", default=[], type=Problem.of_word, help=argparse.SUPPRESS)
    parser.add_argument("--title", default="", help=argparse.SUPPRESS)
    parser.add_argument("--dtype", choices=DTYPES, default="bf16", help="type of A and B (default: bf16)")
    parser.add_argument("--trans-a", action="store_true", help="store A transposed (K x M)")
    parser.add_argument("--trans-b", action="store_true", help="store B transposed (N x K)")
    parser.add_argument("--engine", dest="engines", action="append", choices=(*ENGINES, "all"), default=[],
                        help="torch: the vendor's library (default); triton: Primus's own kernel; hipblaslt: "
                        f"{BENCH_COMMAND} (repeatable)")  # fmt: skip
    options.add_duration(parser)
    options.add_common(parser)
    options.add_seed(parser)


def _declare_model(parser: argparse.ArgumentParser) -> None:
    step = "measure all shapes of one training step of this model (`primus models list`)"
    parser.add_argument("--model", metavar="MODEL", help=step)
    parser.add_argument("--matrix", dest="matrices", action="append", default=[], metavar="NAME",
                        help="measure only this matrix (`primus models show MODEL`; repeatable)")  # fmt: skip
    parser.add_argument("--pass", dest="passes", action="append", choices=requested.PASSES, default=[],
                        help="measure only this pass (repeatable; default: all)")  # fmt: skip
    parser.add_argument("--seq-len", type=_size, metavar="TOKENS", help="tokens of a sequence (default: 4096)")
    parser.add_argument("--micro-batch", type=_size, metavar="N", help="sequences of a micro-batch (default: 1)")
    parser.add_argument("--tp", type=_size, metavar="N", help="ranks that share a layer (default: 1)")
    parser.add_argument("--ep", type=_size, metavar="N", help="ranks that share the experts (default: 1)")


def settle(args: argparse.Namespace, gpu_here: bool, source: requested.Source = requested.NOWHERE) -> Settings:
    """The settings in `args` for a machine with or without a GPU; `source`: how to read what they name.

    Raises:
        RequestError: options that contradict each other, or shapes that cannot be; all of it.
    """
    mistakes = Mistakes()
    asked: tuple[Problem, ...] = tuple(args.shape)
    if not asked:
        asked = requested.problems(args, source, mistakes)
    device = _device(args, asked, gpu_here, mistakes)
    engines, left_out = _engines(tuple(dict.fromkeys(args.engines)) or _ON_CPU, device, source)
    problems, changed = _stored(asked, engines, mistakes)
    mistakes.refuse()
    found = Settings(
        problems, engines, device, args.duration, args.seed, tuple(args.output), args.json,
        args.title or requested.title(args),
    )  # fmt: skip
    return found._replace(notes=(*left_out, *changed, *_grouped(found)))


class Gemm(RankBenchmark[Settings]):
    """The benchmark `gemm`."""

    name, epilog = "gemm", _EPILOG

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """The options."""
        declare(parser)

    def settle(self, args: argparse.Namespace, call: TaskCall, place: RunPlace) -> Settings:
        """See `settle`."""
        path = call.facts.environ.get("PATH", "")
        source = requested.Source(
            models=call.catalogue.system.model_files,
            path=lambda name: os.path.join(call.facts.cwd, call.file(name)),
            has_command=partial(_has_command, path),
        )
        return settle(args, bool(call.facts.gpus), source)

    def suite(self, machine: SuiteMachine, *, quick: bool) -> SuitePart:
        """A large square in each type, with each engine that is here."""
        size = {"cpu": 512 if quick else 1024, "cuda": 4096 if quick else 8192}[machine.device]
        on_gpu = machine.device == "cuda"
        dtypes = [DTYPES[0], *["fp8"] * ("fp8" in machine.dtypes)]
        shapes = [Problem(size, size, size, one, trans_b=one == "fp8").word() for one in dtypes]
        engines = ["torch", *["triton"] * (on_gpu and machine.has_module("triton"))]
        engines += ["hipblaslt"] * (on_gpu and machine.has_command(BENCH_COMMAND))
        words = (*options.repeated("--shape", shapes), *options.repeated("--engine", engines))
        return SuitePart((*words, *options.for_suite(machine, quick=quick)))

    def requires(self, settings: Settings, call: TaskCall) -> tuple[Requirement, ...]:
        """What the engines need."""
        fix = (
            "build the clients of hipBLASLt (./install.sh -c in its folder of ROCm/rocm-libraries), and add the folder "
            f"with {BENCH_COMMAND} to PATH; or choose another --engine: torch, triton"
        )
        command = (Requirement("command", BENCH_COMMAND, fix),) * ("hipblaslt" in settings.engines)
        return (*options.requirements(*["triton"] * ("triton" in settings.engines)), *command)

    def on_cpu(self, settings: Settings) -> str:
        """What to do without a GPU: some engines and types have nothing on a CPU."""
        is_cpu = settings.engines == _ON_CPU and all(one.dtype != "fp8" for one in settings.problems)
        return super().on_cpu(settings) if is_cpu else _ON_CPU_ONLY

    def notes(self, settings: Settings, call: TaskCall) -> tuple[str, ...]:
        """What the settings have to say."""
        return settings.notes

    def reads(self, call: TaskCall) -> tuple[str, ...]:
        """The file of shapes, or of the model."""
        return tuple(filter(None, (call.args.model, call.args.shapes)))


GEMM = Gemm()


def _has_command(path: str) -> bool:
    import shutil  # it loads every compression library, for one engine

    return shutil.which(BENCH_COMMAND, path=path) is not None


def _device(args: argparse.Namespace, problems: tuple[Problem, ...], gpu_here: bool,
            mistakes: Mistakes) -> str:  # fmt: skip
    fp8 = args.dtype == "fp8" or any(one.dtype == "fp8" for one in problems)
    reasons = [f"--engine {name}" for name in args.engines if name in ENGINES[1:]] + ["--dtype fp8"] * fp8
    if reasons and args.device == "cpu":
        mistakes.add(*(_needs_gpu(reason) for reason in reasons))
    return options.device_for("cuda" if reasons and args.device == "auto" else args.device, gpu_here)


def _needs_gpu(reason: str) -> RequestError:
    return RequestError(
        f"{reason} needs a GPU, but --device is cpu",
        why="it does not run on a CPU, or is only emulated there, so its speed would be meaningless",
        fix=f"remove --device; {_ON_CPU_ONLY}",
    )


def _engines(asked: tuple[str, ...], device: str, source: requested.Source) -> tuple[tuple[str, ...], tuple[str, ...]]:
    if "all" not in asked:
        return asked, ()
    if device == "cpu":
        return _ON_CPU, ("the engines triton and hipblaslt are skipped: they need a GPU",)
    if source.has_command():
        return ENGINES, ()
    return ENGINES[:2], (f"the engine hipblaslt is skipped: {BENCH_COMMAND} is not on PATH",)


def _stored(problems: tuple[Problem, ...], engines: tuple[str, ...],
            mistakes: Mistakes) -> tuple[tuple[Problem, ...], tuple[str, ...]]:  # fmt: skip
    """The problems as the engines can multiply them: libraries take fp8 in one layout only."""
    if engines == ("triton",) or not any(one.dtype == "fp8" for one in problems):
        return problems, ()
    wrong = [one for one in problems if one.dtype == "fp8" and not _fp8_fits(one)]
    why = f"A must be M x K, and N and K must be multiples of {_FP8_STEP}, in each group"
    fix = "choose such sizes without --trans-a, or use --engine triton"
    mistakes.add(*(RequestError(f"torch cannot multiply this in fp8: {one}", why=why, fix=fix) for one in wrong))
    stored = tuple(one._replace(trans_b=True) if one.dtype == "fp8" else one for one in problems)
    note = ("fp8: B is stored transposed (N x K), the only layout that torch multiplies",)
    return stored, note * (stored != problems)


def _fp8_fits(one: Problem) -> bool:
    depths = one.group_sizes if one.split == "k" else (one.k,)
    return not (one.trans_a or one.n % _FP8_STEP or any(depth % _FP8_STEP for depth in depths))


def _grouped(settings: Settings) -> tuple[str, ...]:
    if "hipblaslt" not in settings.engines or all(one.groups == 1 for one in settings.problems):
        return ()
    if not any(engines for _, engines in settings.measured()):
        fix = "choose --engine torch or triton"
        raise RequestError("--engine hipblaslt measures no grouped GEMM", fix=fix)
    return ("the engine hipblaslt skips the grouped GEMMs",)


_EXAMPLES = "1024:16384:x2 (doubled) or 1024:4096:+1024 (in steps)"


def _size(text: str) -> int:
    return options.whole(text, 1, MOST)


def _sizes(text: str) -> tuple[int, ...]:
    return options.series(text, _size, _EXAMPLES)
