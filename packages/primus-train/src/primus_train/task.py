"""Train a model with TorchTitan, Megatron or MaxText.

primus direct -- train pretrain --config exp.yaml training.steps=100
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from primus_core.environment import resolve as environment
from primus_core.errors import Mistakes
from primus_core.plan.plan import Variable
from primus_core.plugins.contracts import Scope, TaskCall, TaskPlan
from primus_core.request.arguments import Parser, flags_of
from primus_train import modes, profiling
from primus_train.planning import Planning, Resolved, named
from primus_train.which_run import add_which_run

if TYPE_CHECKING:
    from primus_core.config.document import Document

__all__ = ["TRAIN", "resolve", "written"]


class Train:
    """Task `train`."""

    name = "train"
    scope: Scope = "rank"
    epilog = """examples:
  primus direct -- train pretrain --config exp.yaml
  primus direct -- train pretrain --config exp.yaml training.steps=100 --optimizer.lr 3e-4   # TorchTitan's names
  primus direct -- train pretrain --config exp.yaml train_iters=100 --lr 3e-4                # Megatron's
  primus direct -- train pretrain --config exp.yaml --profile 10:13
  primus direct --dry-run -- train pretrain --config exp.yaml
  primus direct -- train pretrain --replay output/exp_2026_11_21_134522"""

    def add_arguments(self, parser: Parser) -> None:
        """`train STAGE --config FILE [settings]`."""
        parser.add_argument("stage", metavar="STAGE", help="what to train: pretrain, or another stage of the backend")
        parser.add_argument("--config", metavar="FILE", help="the experiment (YAML or TOML)")
        parser.add_argument("--replay", metavar="RUN", help="replay a saved run, as `primus replay`")
        profiling.add_argument(parser)
        add_which_run(parser)
        modes.add_argument(parser)
        parser.add_argument("--check", action="store_true", help="with --replay: only show what differs; start nothing")
        parser.add_argument("--force", action="store_true", help="with --replay: start despite blocking differences")
        parser.add_argument(
            "--trust", action="store_true", help="with --replay: replay another user's run without asking"
        )
        parser.usage = f"{parser.prog} STAGE --config FILE [key=value | --key value ...]  |  STAGE --replay RUN"
        parser.rest_to("overrides")
        parser.first_words = ("pretrain",)

    def plan(self, call: TaskCall) -> TaskPlan:
        """Read the experiment, let the backend translate it, and plan the run."""
        if not call.args.config:
            from primus_train.templates import similar

            raise similar.missing_option(call.args.stage, call.args.overrides, call.command, call.facts.environ)
        _refuse_misspelt(self, call.args.overrides)
        return _without_mistakes(call, Planning.plan)

    def environment(self, path: str, environ: Mapping[str, str]) -> tuple[str, tuple[Variable, ...]]:
        """The framework of the experiment in the file `path`, and what its `env:` sets."""
        from primus_train import experiment as experiments

        document = experiments.read(path, environ)
        experiment = experiments.parse(document)
        given = environment.of_experiment(experiment.env, environ, lambda name: document.where(("env", name)))
        module = experiment.modules.get("pre_trainer") or next(iter(experiment.modules.values()))
        if len({one.framework for one in experiment.modules.values()}) > 1:
            module = experiment.modules[experiments.select(experiment, "pretrain", document)]
        workspace = os.path.abspath(os.path.expanduser(experiment.workspace))
        seen = {**{variable.name: variable.value for variable in given}, **environ}
        asked = modes.Training(module.framework, named(experiment, module), workspace, seen)
        return module.framework, (*modes.environment(asked), *given)


def _refuse_misspelt(task: Train, words: Sequence[str]) -> None:
    from primus_train import overrides

    parser = Parser(prog=task.name)
    task.add_arguments(parser)
    overrides.refuse_misspelt(words, [*flags_of(parser), "--dry-run"])


def resolve(call: TaskCall) -> Resolved:
    """The experiment that `call` names, with what its backend makes of it; for those who want more than the plan.

    Raises:
        RequestError: something in it is wrong, or its backend is not installed.
    """
    return _without_mistakes(call, Planning.resolved)


def written(call: TaskCall) -> Document:
    """The experiment that `call` names as it is written, with the command line's settings where a file has them.

    Raises:
        RequestError: something in it is wrong.
    """
    return _without_mistakes(call, Planning.written)


T = TypeVar("T")


def _without_mistakes(call: TaskCall, answer: Callable[[Planning], T]) -> T:
    """What planning answers, unless anything is wrong: then all of it."""
    mistakes = Mistakes()
    with mistakes:
        found = answer(Planning(call, mistakes))
    mistakes.refuse()
    return found


TRAIN = Train()
