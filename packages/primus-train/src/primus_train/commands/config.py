"""What training adds to `primus config`: experiments and their templates."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Mapping
from importlib import import_module

from primus_core.config.files import TEMPLATE
from primus_core.errors import RequestError
from primus_core.request.arguments import Parser, flags_of
from primus_train.which_run import add_which_run

__all__ = ["EXAMPLES", "add", "complete", "run"]

EXAMPLES = """  primus config list llama3 MI300X
  primus config new llama3.1_8B --backend megatron --gpu MI300X -o exp.yaml
  primus config show exp.yaml --resolved
  primus config validate exp.yaml
  primus config diff exp.yaml template:megatron/llama3.1_8B/MI300X
  primus config migrate exp.yaml --to megatron-core==0.19 -o new.yaml"""
_LIST_EPILOG = """examples:
  primus config list
  primus config list megatron qwen
  primus config list MI355X --json"""
_NEW_EPILOG = """examples:
  primus config new llama3.1_8B --backend megatron --gpu MI300X
  primus config new llama3.1_8B --backend megatron --gpu MI355X --precision FP8
  primus config new qwen3_8B --backend torchtitan --gpu MI355X -o exp.yaml"""
_SHOW_EPILOG = """examples:
  primus config show exp.yaml
  primus config show exp.yaml --resolved training.steps=100
  primus config show template:megatron/llama3.1_8B/MI300X --resolved --json"""
_VALIDATE_EPILOG = """examples:
  primus config validate exp.yaml
  primus config validate exp.yaml training.steps=100 --optimizer.lr 3e-4   # TorchTitan's names
  primus config validate exp.yaml train_iters=100 --lr 3e-4                # Megatron's
  primus config validate exp.yaml --gpu MI300X --nodes 8
  primus config validate experiments/ --json
  primus config validate experiments/ --markdown
  primus config validate exp.yaml --assume-host node.tar.gz"""
_DIFF_EPILOG = """examples:
  primus config diff exp.yaml other.yaml
  primus config diff template:megatron/llama3.1_8B/MI300X template:megatron/llama3.1_8B/MI355X --json"""
_MIGRATE_EPILOG = """examples:
  primus config migrate exp.yaml --to torchtitan==0.3
  primus config migrate exp.yaml --to megatron-core==0.19 -o new.yaml
  primus config migrate exp.yaml --to maxtext==0.2.5"""
_EXPERIMENT = "an experiment, YAML or TOML, or template:BACKEND/MODEL/GPU"


def complete(parsers: Mapping[str, Parser]) -> None:
    """Say what may be named, for completion."""
    from primus_train.templates import catalogue

    known = catalogue.known()
    parsers["new"].first_words = tuple(dict.fromkeys(template.model for template in known))
    for action in parsers["new"].actions():
        if action.dest in ("backend", "gpu", "precision"):
            action.choices = sorted({getattr(template, action.dest) for template in known})
    for name in ("show", "validate", "diff"):
        parsers[name].first_words = tuple(template.name for template in known)


def run(args: argparse.Namespace) -> int:
    """Do what one of these actions asks for."""
    module = {"list": "templates", "new": "templates", "validate": "validation", "migrate": "migration"}.get(
        args.action, "resolved"
    )
    return int(getattr(import_module(f"primus_train.commands.{module}"), args.action)(args))


def add(actions: argparse._SubParsersAction[Parser]) -> None:
    """Declare the actions."""
    listing = actions.add_parser("list", help="List the templates that match all words.", epilog=_LIST_EPILOG)
    listing.add_argument(
        "words", nargs="*", metavar="WORD", help="a part of the name of a model, backend, GPU or package"
    )
    new = actions.add_parser("new", help="Write an experiment from a template.", epilog=_NEW_EPILOG)
    new.add_argument("model", metavar="MODEL", type=_model, help="a model of `primus config list`")
    new.add_argument("--backend", metavar="BACKEND", required=True, help="the framework")
    new.add_argument("--gpu", metavar="GPU", required=True, help="the GPU model")
    new.add_argument(
        "--precision", metavar="NAME", default="", help="use this precision instead of the usual one, such as FP8"
    )
    new.add_argument("-o", "--output", metavar="FILE", default="", help="write to FILE (default: stdout)")
    show = actions.add_parser("show", help="Show an experiment, with everything that it extends.", epilog=_SHOW_EPILOG)
    show.add_argument("file", metavar="FILE", help=_EXPERIMENT)
    show.add_argument("--resolved", action="store_true", help="show every setting of a launch, and where it comes from")
    validate = actions.add_parser("validate", help="Check everything that a launch checks.", epilog=_VALIDATE_EPILOG)
    validate.add_argument("file", metavar="FILE", help=f"{_EXPERIMENT}; or a folder with experiments")
    validate.add_argument(
        "--markdown", action="store_true", help="with a folder: print a Markdown table by family of models"
    )
    diff = actions.add_parser("diff", help="Show which settings of two experiments differ.", epilog=_DIFF_EPILOG)
    diff.add_argument("first", metavar="A", help=_EXPERIMENT)
    diff.add_argument("second", metavar="B", help=_EXPERIMENT)
    migrating = actions.add_parser(
        "migrate", help="Rename settings for another version of the framework.", epilog=_MIGRATE_EPILOG
    )
    migrating.add_argument("file", metavar="FILE", help="an experiment, YAML or TOML")
    migrating.add_argument("--to", metavar="FRAMEWORK==VERSION", required=True, help="the version to migrate to")
    migrating.add_argument("-o", "--output", metavar="FILE", default="", help="write to FILE (default: stdout)")
    for action in (show, validate, diff):
        _add_machine(action)
    for action in (show, validate):
        action.usage = f"{action.prog} FILE [key=value | --key value ...] [options]"
        add_which_run(action)
        action.rest_to("overrides")
    for action in (listing, show, validate, diff):
        action.add_argument("--json", action="store_true", help="print JSON")
    for action in (show, validate):
        action.set_defaults(flags=tuple(flags_of(action)))
    for action in (listing, new, show, validate, diff, migrating):
        action.set_defaults(run=run)


def _add_machine(parser: Parser) -> None:
    group = parser.add_argument_group(
        "machine", "resolve the settings for this machine (default: that of the template, or this machine)"
    )
    group.add_argument(
        "--assume-host", metavar="FILE", default="", help="use a machine captured by `primus env capture`"
    )
    group.add_argument(
        "--gpu", metavar="MODEL", default="", help="use machines with GPUs of this model; none: this one, without a GPU"
    )
    group.add_argument("--gpus-per-node", type=_count, metavar="N", help="number of GPUs per machine (default: 8)")
    group.add_argument(
        "-N",
        "--nodes",
        type=_count,
        metavar="N",
        help="number of machines (default: 1; validate: as many as the layout needs)",
    )


def _model(text: str) -> str:
    """For `type=`: the name of a model. Where a template is named by its path, the options for the rest are told."""
    from primus_train.models import catalogue as models  # packages' own, for a name with a `/`
    from primus_train.templates import catalogue

    if "/" not in text:
        return text
    if named := models.named(text, models.load()):
        return named.name
    known = catalogue.known()
    flags = {one.backend.lower(): ("--backend", one.backend) for one in known}
    flags |= {one.gpu.lower(): ("--gpu", one.gpu) for one in known}
    parts = text.removeprefix(TEMPLATE).split("/")
    rest = [part for part in parts if part.lower() not in flags]
    meant = shlex.join([*rest, *(word for part in parts for word in flags.get(part.lower(), ()))])
    fix = "the backend and the GPU are options"
    raise RequestError(f"'{text}' is not a model", fix=fix, options=[text], meant=meant)


def _count(text: str) -> int:
    if not (text.isdecimal() and text.isascii() and len(text) < 7 and int(text)):
        raise argparse.ArgumentTypeError(f"'{text}' is not a number from 1 to 999999")
    return int(text)
