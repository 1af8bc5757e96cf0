"""Experiments and their templates: list, new, show, validate, diff; primus.yaml files: system."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from importlib import import_module

from primus_core.request.arguments import Parser, parse_segment
from primus_core.training.task import add_which_run

__all__ = ["parser", "run"]

_EPILOG = """examples:
  primus config list llama3 MI300X
  primus config new llama3.1_8B --backend megatron --gpu MI300X -o exp.yaml
  primus config show exp.yaml --resolved
  primus config validate exp.yaml
  primus config diff exp.yaml template:megatron/llama3.1_8B/MI300X
  primus config system"""
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
  primus config validate exp.yaml training.steps=100 --optimizer.lr 3e-4
  primus config validate exp.yaml --gpu MI300X --nodes 8
  primus config validate exp.yaml --assume-host node.tar.gz"""
_DIFF_EPILOG = """examples:
  primus config diff exp.yaml other.yaml
  primus config diff template:megatron/llama3.1_8B/MI300X template:megatron/llama3.1_8B/MI355X --json"""
_SYSTEM_EPILOG = """examples:
  primus config system
  primus config system --config cluster.yaml --json"""
_EXPERIMENT = "an experiment, YAML or TOML, or template:BACKEND/MODEL/GPU"


def parser() -> Parser:
    """The command's parser, with what may be named for completion."""
    from primus_core.templates import catalogue

    whole, known = _parser(), catalogue.known()
    actions = whole.subcommands()
    actions["new"].first_words = tuple(dict.fromkeys(template.model for template in known))
    for action in actions["new"].actions():
        if action.dest in ("backend", "gpu", "precision"):
            action.choices = sorted({getattr(template, action.dest) for template in known})
    for name in ("show", "validate", "diff"):
        actions[name].first_words = tuple(template.name for template in known)
    return whole


def run(words: Sequence[str], layer: str) -> int:
    """Do what the words ask for."""
    args = parse_segment(_parser(), words)
    args.layer = layer
    if args.action == "system":
        from primus_core.commands import config_system

        return config_system.run(args)
    module = {"list": "config_templates", "new": "config_templates"}.get(args.action, "config_resolved")
    return int(getattr(import_module(f"primus_core.commands.{module}"), args.action)(args))


def _parser() -> Parser:
    parser = Parser(prog="primus config", epilog=_EPILOG, description="Experiments, templates, and the system config.")
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="templates: all, or those that have all the words", epilog=_LIST_EPILOG)
    listing.add_argument("words", nargs="*", metavar="WORD", help="part of a model, backend, GPU or package")
    new = actions.add_parser("new", help="write an experiment to edit, from a template", epilog=_NEW_EPILOG)
    new.add_argument("model", metavar="MODEL", help="a model of `primus config list`")
    new.add_argument("--backend", metavar="BACKEND", required=True, help="the framework that trains it")
    new.add_argument("--gpu", metavar="GPU", required=True, help="the GPUs that train it")
    new.add_argument("--precision", metavar="NAME", default="", help="another than the usual one, as FP8")
    new.add_argument("-o", "--output", metavar="FILE", default="", help="write it there (default: to stdout)")
    show = actions.add_parser("show", help="an experiment, with what it extends", epilog=_SHOW_EPILOG)
    show.add_argument("file", metavar="FILE", help=_EXPERIMENT)
    show.add_argument("--resolved", action="store_true", help="every setting as a launch has it, and where it is from")
    validate = actions.add_parser("validate", help="check all that a launch checks", epilog=_VALIDATE_EPILOG)
    validate.add_argument("file", metavar="FILE", help=_EXPERIMENT)
    diff = actions.add_parser("diff", help="what differs between two, resolved", epilog=_DIFF_EPILOG)
    diff.add_argument("first", metavar="A", help=_EXPERIMENT)
    diff.add_argument("second", metavar="B", help=_EXPERIMENT)
    system = actions.add_parser("system", help="what primus.yaml files set, and which line does", epilog=_SYSTEM_EPILOG)
    system.add_argument("--config", metavar="FILE", default="", help="a further layer, which wins over the others")
    for action in (show, validate, diff):
        _add_machine(action)
    for action in (show, validate):
        action.usage = f"{action.prog} FILE [key=value | --key value ...] [options]"
        add_which_run(action)
        action.rest_to("overrides")
    for action in (listing, show, diff, system):
        action.add_argument("--json", action="store_true", help="as JSON")
    return parser


def _add_machine(parser: Parser) -> None:
    group = parser.add_argument_group(
        "the machine", "for which the settings are resolved (default: that of the template; without one, this)"
    )
    group.add_argument("--assume-host", metavar="FILE", default="", help="the machine of `primus env capture`")
    group.add_argument("--gpu", metavar="MODEL", default="", help="machines with GPUs of this model")
    group.add_argument("--gpus-per-node", type=_count, metavar="N", help="so many in each (default: 8)")
    group.add_argument("--nodes", type=_count, metavar="N", help="so many machines (default: 1)")


def _count(text: str) -> int:
    if not (text.isdecimal() and text.isascii() and len(text) < 7 and int(text)):
        raise argparse.ArgumentTypeError(f"'{text}' is no number from 1 to 999999")
    return int(text)
