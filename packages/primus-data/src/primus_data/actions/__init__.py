"""The actions of `data`: their arguments, and what they call."""

from __future__ import annotations

import importlib
from collections.abc import Iterator

from primus_core.request.arguments import Parser
from primus_data.contract import Action

__all__ = ["NAMES", "add_actions", "find"]

NAMES = ("fetch", "filter", "prepare", "inspect", "verify", "merge", "split", "blend")
"""In the order of their use; each is a module with an `ACTION`."""


def find(name: str) -> Action:
    """The action of that name."""
    action: Action = importlib.import_module(f"{__name__}.{name}").ACTION
    return action


def add_actions(parser: Parser) -> None:
    """Declare a subcommand for each of them."""
    from primus_data.actions.arguments import ActionParser

    choices = parser.add_subparsers(
        dest="action", metavar="ACTION", required=True, prog=parser.prog, parser_class=ActionParser
    )
    for name, summary, action in _all():
        sub = choices.add_parser(name, help=summary, epilog=action.epilog)
        action.add_arguments(sub)


def _all() -> Iterator[tuple[str, str, Action]]:
    for name in NAMES:
        module = importlib.import_module(f"{__name__}.{name}")
        yield name, (module.__doc__ or "").partition("\n")[0], module.ACTION
