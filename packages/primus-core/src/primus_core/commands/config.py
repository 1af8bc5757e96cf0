"""Settings of primus.yaml files: system; of training: experiments and templates, list, new, show, validate, diff."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import cast

from primus_core.errors import RequestError
from primus_core.installed import packages
from primus_core.plugins.catalogue import how_to_install
from primus_core.plugins.contracts import ConfigActions
from primus_core.request.arguments import Parser, parse_segment

__all__ = ["parser", "run"]

_GROUP = "primus.config"
_OF_TRAINING = ("list", "new", "show", "validate", "diff")
"""What a person may expect where primus-train is not installed."""
_EXAMPLE = "  primus config system"
_SYSTEM_EPILOG = """examples:
  primus config system
  primus config system --config cluster.yaml --json"""


def parser() -> Parser:
    """The command's parser, with what may be named for completion."""
    whole = _parser()
    for others in _others():
        others.complete(whole.subcommands())
    return whole


def run(words: Sequence[str], layer: str) -> int:
    """Do what the words ask for."""
    if words and words[0] in _OF_TRAINING and not any(_others()):
        raise RequestError(f"`primus config {words[0]}` is not installed", fix=how_to_install("primus-train"))
    args = parse_segment(_parser(), words)
    args.layer = layer
    return int(args.run(args))


def _parser() -> Parser:
    others = tuple(_others())
    examples = "\n".join([*(one.EXAMPLES for one in others), _EXAMPLE])
    parser = Parser(
        prog="primus config",
        epilog=f"examples:\n{examples}",
        description="Experiments, templates, and the system config.",
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for one in others:
        one.add(actions)
    system = actions.add_parser("system", help="what primus.yaml files set, and which line does", epilog=_SYSTEM_EPILOG)
    system.add_argument("--config", metavar="FILE", default="", help="a further layer, which wins over the others")
    system.add_argument("--json", action="store_true", help="as JSON")
    system.set_defaults(run=_system)
    return parser


def _system(args: argparse.Namespace) -> int:
    from primus_core.commands import config_system

    return config_system.run(args)


def _others() -> Iterator[ConfigActions]:
    """What packages add."""
    for entry in sorted(packages.entry_points(_GROUP), key=lambda entry: entry.name):
        yield cast("ConfigActions", import_module(entry.module))
