"""From what is typed to the multiplications: sizes and sweeps, a file of shapes, or the training step of a model."""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple

from primus_bench.benchmarks.gemm.problem import Problem
from primus_core.errors import Mistakes, RequestError

__all__ = ["NOWHERE", "PASSES", "Source", "problems", "title"]

PASSES = ("fwd", "dgrad", "wgrad")
"""Y = X·Wᵀ, the gradient of X, and the gradient of W."""
_SEQ_LEN = 4096
_MOST_SHAPES = 500
_OF_SIZES = {"-M": "M", "-N": "N", "-K": "K", "--trans-a": "trans_a", "--trans-b": "trans_b", "--groups": "groups"}
_OF_MODELS = {"--matrix": "matrices", "--pass": "passes", "--seq-len": "seq_len", "--micro-batch": "micro_batch",
              "--tp": "tp", "--ep": "ep"}  # fmt: skip


class Source(NamedTuple):
    """The machine, as far as the options name things on it."""

    models: Sequence[str]
    """A person's own files of models."""
    path: Callable[[str], str]
    """The file to read for one that is named."""
    has_command: Callable[[], bool]
    """Whether `hipblaslt-bench` is on PATH."""


NOWHERE = Source((), lambda name: name, lambda: False)


def problems(args: argparse.Namespace, source: Source, mistakes: Mistakes) -> tuple[Problem, ...]:
    """What `args` ask for; nothing where it is wrong, which `mistakes` then have."""
    _refuse_mixed(args, mistakes)
    if args.stray and (args.shapes or args.model or args.M):
        what, fix = f"unknown word '{args.stray[0]}'", "see `primus direct -- bench gemm --help`"
        mistakes.add(RequestError(what, fix=fix, kind="unknown", options=args.stray[:1]))
    with mistakes:
        if args.shapes:
            from primus_bench.benchmarks.gemm import shapes  # csv and json, only where a file is named

            return shapes.read(source.path(args.shapes), args.dtype)
        if args.model:
            return _of_model(args, source)
        if args.M:
            return _of_sizes(args)
        if not mistakes:
            fix = "or name a model or a file: --model llama3.1_8B, --shapes FILE"
            what = "the following arguments are required: -M"
            raise RequestError(what, fix=fix, kind="missing", options=["-M"])
    return ()


def _refuse_mixed(args: argparse.Namespace, mistakes: Mistakes) -> None:
    sizes, of_models = _given(args, _OF_SIZES), _given(args, _OF_MODELS)
    sources = ["--model"] * bool(args.model) + ["--shapes"] * bool(args.shapes)
    if sources and sizes:
        what = "a model defines the shapes" if args.model else "the file defines the shapes"
        instead = "; the number of tokens is --seq-len x --micro-batch" if args.model and "-M" in sizes else ""
        mistakes.add(RequestError(what, fix=f"remove {', '.join(sizes)}, or remove {sources[0]}{instead}"))
    if len(sources) > 1:
        mistakes.add(RequestError("--model and --shapes both define the shapes", fix="remove one of them"))
    if of_models and not args.model:
        fix = "add --model MODEL; `primus models list` lists the models"
        mistakes.add(RequestError(f"only a model has {', '.join(of_models)}", fix=fix))


def _given(args: argparse.Namespace, flags: dict[str, str]) -> list[str]:
    return [flag for flag, name in flags.items() if getattr(args, name)]


def _of_sizes(args: argparse.Namespace) -> tuple[Problem, ...]:
    sizes = [
        size for m in args.M for size in itertools.product([m], args.N or [m], args.K or [m])
    ]  # fmt: skip
    if len(sizes) > _MOST_SHAPES:
        why = f"at most {_MOST_SHAPES} are possible"
        raise RequestError(f"-M, -N and -K are {len(sizes)} shapes together", why=why, fix="name fewer sizes")
    groups = args.groups or 1
    if groups > min(args.M):
        raise RequestError(f"--groups {groups} cannot share {min(args.M)} rows", fix="choose at most M groups")
    return tuple(Problem(*size, args.dtype, args.trans_a, args.trans_b, groups=groups) for size in sizes)


def _of_model(args: argparse.Namespace, source: Source) -> tuple[Problem, ...]:
    from primus_bench.benchmarks.gemm import model  # the catalogue, 100 ms, only where a model is named
    from primus_train.models import catalogue

    found = catalogue.find(args.model, catalogue.load(source.models))
    step = model.Step(args.seq_len or _SEQ_LEN, args.micro_batch or 1, args.tp or 1, args.ep or 1)
    passes = [one for one in PASSES if not args.passes or one in args.passes]
    return model.problems(found.facts, args.matrices, passes, step, args.dtype)


def title(args: argparse.Namespace) -> str:
    """Where many shapes come from."""
    if args.model:
        tokens = f"seq-len {args.seq_len or _SEQ_LEN}, micro-batch {args.micro_batch or 1}"
        return f"one training step of {args.model} on one rank, {tokens}, tp {args.tp or 1}, ep {args.ep or 1}"
    return f"the shapes of {args.shapes}" if args.shapes else ""
