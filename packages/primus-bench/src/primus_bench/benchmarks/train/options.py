"""Measure a training step: of a model's layer, or of an experiment.

The options of `bench train` and its plan. The workers parse their arguments with the same.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from primus_bench import options
from primus_bench.benchmarks.train.experiment import plan_experiment
from primus_bench.contract import SuiteMachine, SuitePart
from primus_bench.options import RankBenchmark
from primus_core.errors import Mistakes, RequestError
from primus_core.plan.plan import RunPlace
from primus_core.plugins.contracts import TaskCall, TaskPlan
from primus_core.request.arguments import Parser, flags_of

if TYPE_CHECKING:
    from primus_bench.benchmarks.train.problem import Problem  # the catalogue, 100 ms

__all__ = ["TRAIN", "Settings", "declare", "settle"]

DTYPES = ("bf16", "fp16", "fp32")
OPTIMIZERS = ("none", "adamw", "sgd")
_SEQ_LEN = {"cpu": 128, "cuda": 4096}
_MOST = 2**24
_STEPS = 20
_OF_LAYERS = {"--seq-len": "seq_len", "--micro-batch": "micro_batch", "--dtype": "dtype", "--optimizer": "optimizer"}
_USUAL = {"--device": "auto", "--duration": 2.0, "--seed": 0}
_EPILOG = """examples:
  primus direct -- bench train --model llama3.1_8B
  primus direct -- bench train --model mixtral_8x7B --seq-len 8192 --optimizer adamw --output train.md
  primus slurm srun -N 2 -- bench train --model llama3.1_8B
  primus direct -- bench train --config exp.yaml --steps 20

Each GPU of the node trains a layer of its own, all at the same time. On a CPU, GPUS_PER_NODE is the number of
processes."""


class Settings(NamedTuple):
    """What will be measured, every default filled in."""

    problem: Problem
    device: str
    duration_s: float
    seed: int
    outputs: tuple[str, ...]
    json: bool

    def words(self) -> tuple[str, ...]:
        """The settings as arguments of the worker."""
        from primus_bench.benchmarks.train.problem import as_json

        p = self.problem
        words = ["--model", p.model, "--facts", as_json(p.facts), "--seq-len", str(p.seq_len)]
        words += ["--micro-batch", str(p.micro_batch), "--dtype", p.dtype, "--optimizer", p.optimizer]
        words += ["--device", self.device, "--duration", repr(self.duration_s), "--seed", str(self.seed)]
        return (*words, *options.output_words(self.outputs, json=self.json))


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `bench train`."""
    parser.add_argument("--model", metavar="MODEL", help="measure a layer of this model (`primus models list`)")
    parser.add_argument("--facts", help=argparse.SUPPRESS)  # of the model, for the worker
    parser.add_argument("--seq-len", type=_size, metavar="TOKENS",
                        help="tokens of a sequence (default: 4096; on a CPU, 128)")  # fmt: skip
    parser.add_argument("--micro-batch", type=_size, metavar="N", help="sequences of a step (default: 1)")
    parser.add_argument("--dtype", choices=DTYPES, help="type of weights and activations (default: bf16)")
    parser.add_argument("--optimizer", choices=OPTIMIZERS,
                        help="also measure a step with this optimizer (default: none)")  # fmt: skip
    experiment = "train this experiment instead, as `train pretrain` does; settings may follow: key=value"
    parser.add_argument("--config", metavar="FILE", help=experiment)
    parser.add_argument("--steps", type=_steps, metavar="N", help=f"steps of the experiment (default: {_STEPS})")
    options.add_duration(parser)
    options.add_common(parser)
    options.add_seed(parser)


def settle(args: argparse.Namespace, gpu_here: bool, models: Sequence[str] = ()) -> Settings:
    """The settings in `args` for a machine with or without a GPU; `models`: a person's own files of models.

    Raises:
        RequestError: there is no such model, or its layer cannot be built; all of it.
    """
    from primus_bench.benchmarks.train.problem import Problem, of_json, one_layer

    if args.facts:
        facts = of_json(args.facts)
    elif args.model:
        from primus_train.models import catalogue

        facts = one_layer(catalogue.find(args.model, catalogue.load(models)).facts)
    else:
        fix = "name a model or an experiment: --model llama3.1_8B, --config FILE"
        raise RequestError("the following arguments are required: --model or --config", fix=fix)
    device = options.device_for(args.device, gpu_here)
    problem = Problem(
        args.model, facts, args.seq_len or _SEQ_LEN[device], args.micro_batch or 1,
        args.dtype or DTYPES[0], args.optimizer or OPTIMIZERS[0],
    )  # fmt: skip
    _refuse_impossible(problem)
    return Settings(problem, device, args.duration, args.seed, tuple(args.output), args.json)


def _refuse_impossible(problem: Problem) -> None:
    from primus_bench.benchmarks.train.problem import unbuildable

    mistakes, moe = Mistakes(), problem.facts.moe
    for what in unbuildable(problem.facts):
        why = f"it has {what}, which torch's attention has not"
        fix = f"measure its GEMMs: primus direct -- bench gemm --model {problem.model}"
        mistakes.add(RequestError(f"a layer of {problem.model} cannot be measured", why=why, fix=fix))
    if moe and problem.tokens * moe.topk % moe.num_experts:
        why = f"each of {problem.tokens} tokens has {moe.topk} experts of {moe.num_experts}, all equally often"
        fix = f"choose --seq-len and --micro-batch with a product that {moe.num_experts} divides"
        mistakes.add(RequestError("the experts cannot share the tokens equally", why=why, fix=fix))
    mistakes.refuse()


class Train(RankBenchmark[Settings]):
    """The benchmark `train`."""

    name, epilog = "train", _EPILOG

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """The options, and settings of an experiment."""
        declare(parser)
        if isinstance(parser, Parser):
            parser.rest_to("overrides")

    def settle(self, args: argparse.Namespace, call: TaskCall, place: RunPlace) -> Settings:
        """See `settle`."""
        return settle(args, bool(call.facts.gpus), call.catalogue.system.model_files)

    def reads(self, call: TaskCall) -> tuple[str, ...]:
        """The file of the model."""
        return tuple(filter(None, (call.args.model,)))

    def suite(self, machine: SuiteMachine, *, quick: bool) -> SuitePart:
        """A layer of Llama 3.1 8B; on a CPU, of a small model."""
        model = {"cpu": "qwen3_0.6B", "cuda": "llama3.1_8B"}[machine.device]
        few = ("--seq-len", "64") if machine.device == "cpu" and quick else ()
        return SuitePart(("--model", model, *few, *options.for_suite(machine, quick=quick)))

    def plan(self, call: TaskCall) -> TaskPlan:
        """Of a layer, or of an experiment."""
        _refuse_mixed(call.args)
        if call.args.overrides:
            _refuse_misspelt(call.args.overrides)
        return plan_experiment(call, call.args.steps or _STEPS) if call.args.config else super().plan(call)


TRAIN = Train()


def _refuse_misspelt(words: Sequence[str]) -> None:
    from primus_train.overrides import refuse_misspelt

    parser = Parser(prog=TRAIN.name)
    TRAIN.add_arguments(parser)
    refuse_misspelt(words, flags_of(parser))


def _refuse_mixed(args: argparse.Namespace) -> None:
    mistakes = Mistakes()
    given = [flag for flag, name in _OF_LAYERS.items() if getattr(args, name)]
    given += [flag for flag, usual in _USUAL.items() if getattr(args, flag[2:]) != usual]
    if args.config and args.model:
        mistakes.add(RequestError("--model and --config both define what is trained", fix="remove one of them"))
    elif args.config and given:
        what = f"only a layer has {', '.join(given)}"
        fix = "remove it; settings of the framework follow the file, such as training.seq_len=4096"
        mistakes.add(RequestError(what, fix=fix))
    if not args.config and args.steps:
        mistakes.add(RequestError("only an experiment has --steps", fix="use --duration, or add --config FILE"))
    if not args.config and args.overrides:
        fix = f"see `primus direct -- bench {TRAIN.name} --help`"
        what, why = f"unknown word '{args.overrides[0]}'", "only an experiment has settings"
        mistakes.add(RequestError(what, why=why, fix=fix, kind="unknown", options=args.overrides[:1]))
    mistakes.refuse()


def _size(text: str) -> int:
    return options.whole(text, 1, _MOST)


def _steps(text: str) -> int:
    return options.whole(text, 2, 10**6)
