"""The plan of `bench train --config`: the experiment's own plan, with a worker that reports when training has ended."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import NamedTuple

from primus_bench import options
from primus_core.errors import RequestError
from primus_core.plan.plan import Worker
from primus_core.plugins.contracts import TaskCall, TaskPlan

__all__ = ["Trained", "declare", "plan_experiment", "settle"]

_MODULE = "primus_bench.benchmarks.train.trained"
_STEPS = {"torchtitan": "training.steps", "megatron": "train_iters", "maxtext": "steps"}
"""What the number of steps is called."""


class Trained(NamedTuple):
    """What the worker does: runs a backend's worker, then reports."""

    steps: int
    name: str
    """Of the experiment's file."""
    outputs: tuple[str, ...]
    json: bool
    module: tuple[str, ...]
    """The worker of the backend, and its arguments."""

    def words(self) -> tuple[str, ...]:
        """The settings as arguments of the worker."""
        words = ["--steps", str(self.steps), "--name", self.name]
        return (*words, *options.output_words(self.outputs, json=self.json), "--", *self.module)


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the worker."""
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--name", required=True)
    options.add_outputs(parser)
    parser.add_argument("module", nargs="+")


def settle(args: argparse.Namespace) -> Trained:
    """The settings in `args`."""
    return Trained(args.steps, args.name, tuple(args.output), args.json, tuple(args.module))


def plan_experiment(call: TaskCall, steps: int) -> TaskPlan:
    """As `train pretrain` plans it, for so many steps, from the first one.

    Raises:
        RequestError: the experiment is wrong, or its framework's name for steps is not known.
    """
    from primus_train.task import TRAIN

    framework = TRAIN.plan(_asked(call, ())).framework
    if framework not in _STEPS:
        why = f"its setting for the number of steps is known for {', '.join(_STEPS)}"
        raise RequestError(f"bench train does not know the framework '{framework}'", why=why,
                           fix="train it, and look at its run: primus runs show latest")  # fmt: skip
    found = TRAIN.plan(_asked(call, (f"{_STEPS[framework]}={steps}",)))
    worker = Trained(
        steps, call.args.config, tuple(options.outputs(call, found.place.directory, "train.json")), call.args.json,
        (found.worker.module, *found.worker.args),
    )  # fmt: skip
    return found._replace(worker=Worker(_MODULE, worker.words(), found.worker.launcher), next_steps=())


def _asked(call: TaskCall, settings: Sequence[str]) -> TaskCall:
    """The call of `train pretrain` for it. Settings that a person types come last, and win.

    It has a name of its own: a training of the experiment shall not continue it.
    """
    args = argparse.Namespace(
        stage="pretrain", config=call.args.config, replay=None, profile=None, always=None, anew=True,
        overrides=["exp_name=bench-train", *settings, *call.args.overrides],
    )  # fmt: skip
    return call._replace(args=args)
