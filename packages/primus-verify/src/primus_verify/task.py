"""Check that parallel layouts of a training compute what one rank computes.

primus direct -- verify --config exp.yaml
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from primus_core import requirements
from primus_core.config.document import dotted
from primus_core.errors import PrimusError, RequestError, suggestion
from primus_core.installed import homes
from primus_core.plan.plan import PlannedFile, Requirement, Worker
from primus_core.plugins.contracts import Scope, TaskCall, TaskPlan
from primus_core.request.arguments import Parser, flags_of, whole_number
from primus_train.templates.recipe import leaves
from primus_verify import layouts
from primus_verify.contract import Verifier
from primus_verify.feasibility import Feasibility
from primus_verify.layouts import Layout
from primus_verify.resolving import arguments, as_experiment, find_verifier, for_its_machine

__all__ = ["AGAINST_MODEL", "ANYWAY", "BEFORE_TRAINING", "EXPERIMENT", "REQUEST", "VERIFY", "Verify"]

EXPERIMENT = "config/verify_experiment.yaml"
"""The small experiment that all trials train, below the run directory."""
REQUEST = "config/verify.json"
"""What the worker reads."""
AGAINST_MODEL = "config/against_model.yaml"
"""The small model that two frameworks train."""
BEFORE_TRAINING = "--before-training"
"""What `train --verify` adds: the person has not typed this command."""
ANYWAY = "to train without verifying, leave out --verify (PRIMUS_VERIFY=0)"
_MOST_RANKS = 4
_STEPS = 3
_TIMEOUT_S = 1800


class Verify:
    """The task `verify`: one process, which starts a training for each layout."""

    name = "verify"
    scope: Scope = "run"
    epilog = """examples:
  primus direct -- verify --config exp.yaml
  primus direct -- verify --config exp.yaml --layouts tp=2,dp=2 dp=4
  primus direct -- verify --config exp.yaml --layouts auto --max-ranks 2 --json
  primus direct -- verify --config exp.yaml --settings

exit codes: 0 every layout that was tried is equal to one rank, or --settings tried at least one;
  1 a layout differs or failed; 2 wrong request, such as a named layout that cannot be tried;
  3 the environment cannot train"""

    def add_arguments(self, parser: Parser) -> None:
        """`verify --config FILE [settings]`."""
        axes = ", ".join(layouts.AXES)
        parser.add_argument("--config", required=True, metavar="FILE", help="the experiment (YAML or TOML)")
        parser.add_argument("--layouts", nargs="+", default=[], metavar="LAYOUT",
                            help=f"layouts such as tp=2,pp=2, own, or auto (default); axes: {axes}")  # fmt: skip
        parser.add_argument("--settings", action="store_true",
                            help="find settings that change nothing: each gets its default, alone")  # fmt: skip
        parser.add_argument("--against", metavar="FRAMEWORK", help="compare with another framework: one small model of "
                            "the same kind, the same weights and tokens")  # fmt: skip
        parser.add_argument("--against-python", metavar="PATH",
                            help="the Python of the environment that has it (default: this one)")  # fmt: skip
        parser.add_argument("--steps", type=whole_number, default=_STEPS, metavar="N",
                            help=f"train N steps in each layout (default: {_STEPS})")  # fmt: skip
        parser.add_argument("--shrink", choices=("auto", "none"), default="auto",
                            help="auto (default): train a small model of its kind; none: train it whole")  # fmt: skip
        parser.add_argument("--max-ranks", type=whole_number, default=_MOST_RANKS, metavar="N",
                            help=f"with auto: the most ranks of a layout (default: {_MOST_RANKS})")  # fmt: skip
        parser.add_argument("--rtol", type=float, metavar="X",
                            help="relative tolerance of gradients (default: from the length of the sums)")  # fmt: skip
        parser.add_argument("--timeout", type=whole_number, default=_TIMEOUT_S, metavar="SECONDS",
                            help=f"stop a training that takes longer (default: {_TIMEOUT_S})")  # fmt: skip
        parser.add_argument("--again", action="store_true", help="train layouts again whose result is known")
        parser.add_argument("--output", metavar="FILE", help="also write the result to FILE, as JSON")
        parser.add_argument(BEFORE_TRAINING, action="store_true", help=argparse.SUPPRESS)
        parser.add_argument("--json", action="store_true", help="print JSON instead of text")
        parser.usage = f"{parser.prog} --config FILE [key=value ...] [--layouts LAYOUT ...]"
        parser.rest_to("overrides")

    def plan(self, call: TaskCall) -> TaskPlan:
        """Resolve the experiment, make it small, and name the layouts."""
        from primus_train import task as train
        from primus_train.overrides import refuse_misspelt

        args = call.args
        parser = Parser(prog=self.name)
        self.add_arguments(parser)
        refuse_misspelt(args.overrides, flags_of(parser))
        _refuse_numbers(args)
        found = train.resolve(for_its_machine(call._replace(args=arguments(args.config, args.overrides))))
        framework = found.experiment.modules[found.module].framework
        verifier = find_verifier(framework)
        settings = found.settings.data
        words_of_layouts = args.layouts or ([] if args.settings or args.against else [layouts.AUTO])
        has_own = layouts.has_own(words_of_layouts)
        left = layouts.left_out(verifier, settings, args.max_ranks) if has_own else []
        chosen = layouts.choose(words_of_layouts, verifier, verifier.own(settings), args.max_ranks, left)
        names = [one.name for one in chosen]
        device = call.facts.gpu_model if call.facts.gpus else "cpu"
        degrees = [one.degrees for one in chosen]
        small, whole = (
            verifier.experiment(settings, shrink=shrink, layouts=degrees, device=device)
            for shrink in (args.shrink == "auto", False)
        )
        batch = verifier.batch(degrees)
        feasibility = Feasibility(verifier, framework, small, whole, batch, call.facts)
        is_here = not (call.elsewhere or call.distributed.tentative)  # else it is planned again where it runs
        request = {
            "framework": framework,
            "framework_version": found.planned.config.get("framework_version", ""),
            "layouts": names,
            "left_out": [(one.name, one.ranks, one.why) for one in left if one.name not in names],
            "not_tried": _not_tried(args, feasibility, chosen) if is_here else {},
            "batch": batch,
            "shrink": args.shrink == "auto",
            "packages": verifier.packages(settings),
            "settings": _to_try(settings, verifier, found.planned.defaults, alone=not chosen) if args.settings else [],
            "steps": args.steps if chosen or args.settings else 1,  # two frameworks are compared in one
            "rtol": args.rtol,
            "timeout_s": args.timeout,
            "json": args.json,
            "again": args.again,
            "against": _other(args, framework, is_here=is_here),
            "output": _output(args.output, call.facts.cwd, is_here=is_here),
            "before_training": args.before_training,
            "device": device,
            "experiment": found.experiment.exp_name,
        }
        files = [PlannedFile(REQUEST, json.dumps(request, indent=1))]
        if args.against:
            files.append(PlannedFile(AGAINST_MODEL, _small_model(found.experiment.modules[found.module].model, call)))
        place = call.place(found.experiment.workspace, f"{found.experiment.exp_name}-verify")
        return TaskPlan(
            place=place,
            worker=Worker("primus_verify.worker", (), "single"),
            files=(
                PlannedFile(EXPERIMENT, as_experiment(framework, small, f"{place.directory}/trials")),
                *files,
            ),
            config=request,
            framework=framework,
            model=found.task.model,
            folder=found.task.folder,
            reads=found.task.reads,
        )


VERIFY = Verify()


def _not_tried(args: argparse.Namespace, feasibility: Feasibility, chosen: Sequence[Layout]) -> dict[str, str]:
    """Return why layouts of `auto` cannot be tried.

    Raises:
        PrimusError: for those that the person, or the training, named.
    """
    try:
        return feasibility.not_tried(chosen)
    except PrimusError as error:
        for one in error.each():
            one.fix = ANYWAY if args.before_training else one.fix
        raise


def _output(path: str | None, cwd: str, *, is_here: bool) -> str | None:
    """Return the file of `--output`.

    Raises:
        RequestError: it cannot be written, which is known before anything is trained.
    """
    if not path:
        return None
    file = os.path.join(cwd, path)
    if is_here and os.path.isdir(file):
        raise RequestError(
            f"--output: {path} is a folder", fix=f"name a file in it: {os.path.join(path, 'verify.json')}"
        )
    folder, fix = os.path.dirname(file), "name another file"
    if is_here and not requirements.is_here(Requirement("folder", folder, fix), {}):
        raise RequestError(f"--output: {path} cannot be written", why=f"{folder} is not a writable folder", fix=fix)
    return file


def _other(args: argparse.Namespace, framework: str, *, is_here: bool) -> dict[str, str] | None:
    """The other framework of `--against`, and its Python."""
    if not args.against:
        return None
    if args.against == framework:
        raise RequestError(f"--against {framework}: the experiment is of {framework}", fix="name another framework")
    if args.against_python and is_here and not shutil.which(args.against_python):
        raise RequestError(f"--against-python: {args.against_python} is not a program", fix="name the Python itself")
    try:
        find_verifier(args.against)
    except RequestError as error:
        if not args.against_python:
            meant = suggestion(args.against, {*homes.names("backends")} - {args.against})
            fix = "if another environment has it, name its Python: --against-python PATH"
            raise RequestError(error.what, why=error.why, fix=f"{meant} {fix}".strip()) from None
    return {"framework": args.against, "python": args.against_python or sys.executable}


def _small_model(named: object, call: TaskCall) -> str:
    from primus_train.models import catalogue
    from primus_verify.against import small_model

    if not isinstance(named, str):
        raise RequestError("--against needs a model of the catalogue", why="the experiment writes its model out",
                           fix="name one as `model:`, see primus models list")  # fmt: skip
    return small_model(catalogue.find(named, catalogue.load(call.catalogue.system.model_files)))


def _to_try(
    settings: Mapping[str, Any], verifier: Verifier, defaults: Mapping[str, Any], *, alone: bool
) -> list[dict[str, Any]]:
    """Return the settings to try.

    Raises:
        RequestError: there is none, and nothing else to do.
    """
    found = _not_default(settings, verifier, defaults)
    if alone and not found:
        why = "each setting that trials have, too, has the framework's default"
        raise RequestError("--settings has nothing to try", why=why, fix=f"--layouts {layouts.AUTO}")
    return found


def _not_default(settings: Mapping[str, Any], verifier: Verifier, defaults: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the settings of the experiment that trials have, too, and that are not the framework's defaults."""
    whole = partial(verifier.experiment, shrink=False, layouts=(), device="cpu")
    own = {dotted(path) for path, _ in leaves(whole({}))}
    given = {dotted(path): value for path, value in leaves(settings)}
    given |= {name.removeprefix("model."): value for name, value in given.items()}  # some frameworks have no section
    kept = {dotted(path): value for path, value in leaves(whole(settings))}
    return [
        {"name": name, "value": value, "default": defaults[name]}
        for name, value in kept.items()
        if name not in own and given.get(name) == value and defaults.get(name) is not None and defaults[name] != value
    ]


def _refuse_numbers(args: argparse.Namespace) -> None:
    if args.rtol is not None and not 0 < args.rtol < 1:
        raise RequestError(f"--rtol: {args.rtol} is not between 0 and 1", fix="--rtol 1e-4")
    for name in ("steps", "max_ranks", "timeout"):
        if getattr(args, name) < 1:
            option = f"--{name.replace('_', '-')}"
            raise RequestError(f"{option} must be at least 1", fix=f"{option} 1")
