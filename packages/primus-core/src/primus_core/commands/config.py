"""Manage experiments, templates and primus.yaml files: list, new, show, validate, diff, migrate, system."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial

from primus_core.installed import joined
from primus_core.installed.homes import how_to_install
from primus_core.output.console import say
from primus_core.plugins.contracts import ConfigActions
from primus_core.request.arguments import Parser, parse_segment
from primus_machine.errors import MachineError, PrimusError

__all__ = ["parser", "run"]

_GROUP = "primus.config"
_OF_TRAINING = ("list", "new", "show", "validate", "diff", "migrate")
"""What a person may expect where primus-train is not installed."""
_EXAMPLE = "  primus config system"
_SYSTEM_EPILOG = """examples:
  primus config system
  primus config system --config cluster.yaml --json"""


def parser() -> Parser:
    """The command's parser, with what may be named for completion."""
    whole = _Whole()
    for others in whole.joined:
        others.complete(whole.parser.subcommands())
    return whole.parser


def run(words: Sequence[str], layer: str) -> int:
    """Do what the words ask for."""
    whole = _Whole()
    if words and words[0] not in whole.parser.subcommands() and not words[0].startswith("-"):
        for broken in whole.broken:
            raise broken
        if words[0] in _OF_TRAINING:
            raise MachineError(f"`primus config {words[0]}` is not installed", fix=how_to_install("primus-train"))
    args = parse_segment(whole.parser, words)
    args.layer = layer
    for broken in whole.broken:
        say(f"primus: note: {broken.what}: {broken.why}\n")
    return int(args.run(args))


class _Whole:
    """The parser with the actions of packages: `joined` have added theirs, and `broken` says why others have not."""

    def __init__(self) -> None:
        self.joined: list[ConfigActions] = []
        self.broken: list[PrimusError] = []
        self.parser = Parser(prog="primus config", description="Manage experiments, templates and primus.yaml files.")
        self.actions = self.parser.add_subparsers(dest="action", metavar="ACTION", required=True)
        for name in dict.fromkeys(entry.name for entry in joined.of_group(_GROUP)):
            self._join(name)
        self._add_system()
        self.parser.epilog = "\n".join(["examples:", *(one.EXAMPLES for one in self.joined), _EXAMPLE])

    def _join(self, name: str) -> None:
        try:
            one: ConfigActions = joined.load(_GROUP, name)
            joined.apart(partial(one.add, self.actions))
            self.joined.append(one)
        except PrimusError as error:
            self.broken.append(error)
        except Exception as error:  # a plugin may raise anything, and must not break the actions of others
            why = f"{type(error).__name__}: {error}"
            self.broken.append(MachineError(f"the actions '{name}' of `primus config` cannot be added", why=why))

    def _add_system(self) -> None:
        system = self.actions.add_parser(
            "system",
            help="Show the effective value of each key of primus.yaml, where it comes from, and what it overrides.",
            epilog=_SYSTEM_EPILOG,
        )
        system.add_argument("--config", metavar="FILE", default="", help="add FILE as the highest layer")
        system.add_argument("--json", action="store_true", help="print JSON")
        system.set_defaults(run=_system)


def _system(args: argparse.Namespace) -> int:
    from primus_core.commands import config_system

    return config_system.run(args)
