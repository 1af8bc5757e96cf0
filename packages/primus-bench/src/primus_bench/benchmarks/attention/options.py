"""Measure the speed of attention, forward and backward.

The options of `bench attention` and its plan. The worker parses its arguments with the same.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import NamedTuple

from primus_bench import options
from primus_bench.benchmarks.attention.problem import DTYPES, PASSES, Problem
from primus_bench.contract import SuiteMachine, SuitePart
from primus_bench.options import RankBenchmark
from primus_core.errors import RequestError
from primus_core.plan.plan import Requirement, RunPlace
from primus_core.plugins.contracts import TaskCall

__all__ = ["ATTENTION", "BACKENDS", "PACKAGES", "Settings", "declare", "settle"]


class Package(NamedTuple):
    """A package that has an attention."""

    module: str
    fix: str
    """How to install it."""


PACKAGES = {
    "flash-attn": Package("flash_attn", "pip install flash-attn --no-build-isolation"),
    "aiter": Package(
        "aiter", "install AITER, which AMD's images of ROCm and PyTorch have: https://github.com/ROCm/aiter"
    ),
}
BACKENDS = ("math", "flash", "efficient", "cudnn", *PACKAGES)
_OF_LAYER = {"--heads": "heads", "--kv-heads": "kv_heads", "--head-dim": "head_dim", "--v-head-dim": "v_head_dim",
             "--window": "window"}  # fmt: skip
_HEADS, _HEAD_DIM = 32, 128
_SEQ = {"cpu": 512, "cuda": 4096}
_EPILOG = """examples:
  primus direct -- bench attention --causal
  primus direct -- bench attention --causal --seq 8192 --heads 64 --kv-heads 8 --backend flash
  primus direct -- bench attention --model deepseek_v3 --seq 2048
  primus direct -- bench attention --causal --window 1024 --direction forward --output attention.md"""


class Settings(NamedTuple):
    """What will be measured, every default filled in."""

    problem: Problem
    backends: tuple[str, ...]
    passes: tuple[str, ...]
    device: str
    duration_s: float
    seed: int
    outputs: tuple[str, ...]
    json: bool
    title: str = ""
    """The model that it is of."""

    def words(self) -> tuple[str, ...]:
        """The settings as arguments of the worker."""
        p = self.problem
        words = ["--batch", str(p.batch), "--seq", str(p.seq), "--heads", str(p.heads), "--kv-heads", str(p.kv_heads)]
        words += ["--head-dim", str(p.head_dim), "--v-head-dim", str(p.values), "--dtype", p.dtype]
        words += ["--causal"] * p.causal + ["--window", str(p.window)] * bool(p.window)
        words += ["--title", self.title] * bool(self.title)
        words += options.repeated("--backend", self.backends) + options.repeated("--direction", self.passes)
        words += ["--device", self.device, "--duration", repr(self.duration_s), "--seed", str(self.seed)]
        return (*words, *options.output_words(self.outputs, json=self.json))


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `bench attention`."""
    parser.add_argument("--batch", type=_size, default=1, metavar="N", help="sequences (default: 1)")
    parser.add_argument("--seq", type=_size, metavar="TOKENS", help="tokens of each (default: 4096; on a CPU, 512)")
    parser.add_argument("--model", default="", metavar="MODEL",
                        help="measure the causal attention of this model's layer (`primus models list`)")  # fmt: skip
    parser.add_argument("--title", default="", help=argparse.SUPPRESS)
    parser.add_argument("--heads", type=_size, metavar="N", help=f"heads of the queries (default: {_HEADS})")
    parser.add_argument("--kv-heads", type=_size, metavar="N",
                        help="heads of keys and values, a divisor of --heads (default: the same)")  # fmt: skip
    parser.add_argument("--head-dim", type=_size, metavar="N", help=f"size of a head (default: {_HEAD_DIM})")
    parser.add_argument("--v-head-dim", type=_size, metavar="N",
                        help="size of a head of the values, if it differs, as in MLA (default: the same)")  # fmt: skip
    parser.add_argument("--dtype", choices=DTYPES, default="bf16", help="type of all tensors (default: bf16)")
    parser.add_argument("--causal", action="store_true", help="a token attends to itself and those before")
    parser.add_argument("--window", type=_size, default=0, metavar="TOKENS",
                        help="sliding window: attend to the nearest TOKENS only")  # fmt: skip
    parser.add_argument("--backend", dest="backends", action="append", choices=BACKENDS, default=[],
                        help="measure this backend (repeatable; default: all that are installed)")  # fmt: skip
    parser.add_argument("--direction", dest="passes", action="append", choices=PASSES, default=[],
                        help="measure only this pass (default: both)")  # fmt: skip
    options.add_duration(parser)
    options.add_common(parser)
    options.add_seed(parser)


def settle(args: argparse.Namespace, gpu_here: bool, model_files: Sequence[str] = ()) -> Settings:
    """The settings in `args` for a machine with or without a GPU. `model_files`: a person's own.

    Raises:
        RequestError: the heads cannot be shared, or no model is named so.
    """
    device = options.device_for(args.device, gpu_here)
    return Settings(
        problem=_of_model(args, device, model_files) if args.model else _of_sizes(args, device),
        title=args.title or args.model,
        backends=tuple(dict.fromkeys(args.backends)) or BACKENDS,
        passes=tuple(dict.fromkeys(args.passes)) or PASSES,
        device=device,
        duration_s=args.duration,
        seed=args.seed,
        outputs=tuple(args.output),
        json=args.json,
    )


def _of_sizes(args: argparse.Namespace, device: str) -> Problem:
    heads, size = args.heads or _HEADS, args.head_dim or _HEAD_DIM
    shared = args.kv_heads or heads
    if heads % shared:
        raise RequestError(f"--heads {heads} cannot share --kv-heads {shared}",
                           why="each head of keys and values serves as many heads of queries",
                           fix=f"choose a divisor of {heads}")  # fmt: skip
    seq = args.seq or _SEQ[device]
    return Problem(args.batch, seq, heads, shared, size, args.dtype, args.causal, args.window,
                   args.v_head_dim or size)  # fmt: skip


def _of_model(args: argparse.Namespace, device: str, model_files: Sequence[str]) -> Problem:
    from primus_bench.benchmarks.attention import model  # the catalogue, 100 ms, only where a model is named
    from primus_train.models import catalogue

    if given := [flag for flag, name in _OF_LAYER.items() if getattr(args, name)]:
        raise RequestError("the model defines the heads", fix=f"remove {', '.join(given)}, or remove --model")
    facts = catalogue.find(args.model, catalogue.load(model_files)).facts
    return model.layer(facts, Problem(args.batch, args.seq or _SEQ[device], 1, 1, 1, args.dtype))


class Attention(RankBenchmark[Settings]):
    """The benchmark `attention`."""

    name, epilog = "attention", _EPILOG

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """The options."""
        declare(parser)

    def settle(self, args: argparse.Namespace, call: TaskCall, place: RunPlace) -> Settings:
        """See `settle`."""
        return settle(args, bool(call.facts.gpus), call.catalogue.system.model_files)

    def requires(self, settings: Settings, call: TaskCall) -> tuple[Requirement, ...]:
        """The packages that are named."""
        named = (PACKAGES[name] for name in PACKAGES if name in call.args.backends)
        return tuple(Requirement("module", one.module, fix=one.fix) for one in named)

    def reads(self, call: TaskCall) -> tuple[str, ...]:
        """The file of the model."""
        return (call.args.model,) if call.args.model else ()

    def suite(self, machine: SuiteMachine, *, quick: bool) -> SuitePart:
        """Grouped queries, as in Llama 3.1 8B."""
        heads = (
            ("--heads", "32", "--kv-heads", "8") if machine.device == "cuda" else ("--heads", "8", "--kv-heads", "2")
        )
        seq = ("--seq", "256") if machine.device == "cpu" and quick else ()
        return SuitePart(("--causal", *heads, *seq, *options.for_suite(machine, quick=quick)))


ATTENTION = Attention()


def _size(text: str) -> int:
    return options.whole(text, 1, 2**24)
