"""Subcommands as modules of AMD's Primus have them, dropped in as they are: `register_subcommand(subparsers)`.

The `func` among the defaults of its parser gets the arguments, and a list of those that are unknown.
"""

from __future__ import annotations

import argparse
import ast
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from primus_core.request.arguments import Parser, flags_of
from primus_machine.errors import RequestError, suggestion

__all__ = ["FUNCTION", "Subcommand", "declared", "of"]

FUNCTION = "register_subcommand"


def declared(tree: ast.Module) -> list[tuple[str, str]]:
    """The (name, help) of the subcommand that a file's `register_subcommand(subparsers)` adds."""
    found = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == FUNCTION]
    calls = [node for function in found for node in ast.walk(function) if isinstance(node, ast.Call)]
    added = [call for call in calls if getattr(call.func, "attr", "") == "add_parser" and call.args]
    named = [(_text(call.args[0]), _help(call)) for call in added[:1]]  # further ones are its own subcommands
    return [(name, text) for name, text in named if name]


def _text(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _help(call: ast.Call) -> str:
    return next((_text(keyword.value) for keyword in call.keywords if keyword.arg == "help"), "")


def of(module: ModuleType, name: str) -> Subcommand | None:
    """The subcommand `name` that a module adds by a function of its own, or None."""
    register = getattr(module, FUNCTION, None)
    if getattr(register, "__module__", "") != module.__name__ or hasattr(register, "__primus_task__"):
        return None
    return Subcommand(name, register)  # type: ignore[arg-type]  # a function of the module


class Subcommand:
    """One of them: what its words mean, and its function."""

    def __init__(self, name: str, register: Callable[[Any], Any]) -> None:
        self.name = name
        self.parser = Parser(prog="primus ... --")
        register(self.parser.add_subparsers(dest="command", required=True))

    def parse(self, words: Sequence[str]) -> argparse.Namespace:
        """Its arguments.

        Raises:
            RequestError: a word is wrong, or nobody's.
        """
        args, unknown = self.parser.parse_known_args([self.name, *words])
        if unknown:
            known = flags_of(self.parser.below([self.name, *words]))
            fix = suggestion(unknown[0], known) or f"see `primus direct -- {self.name} --help`"
            raise RequestError(f"'{self.name}' has no option '{unknown[0]}'", fix=fix)
        return args

    def help(self) -> str:
        """As argparse shows it."""
        return self.parser.below([self.name]).format_help()

    def run(self, words: Sequence[str]) -> None:
        """Call its function. What that returns is ignored, as ever; `raise SystemExit(N)` is the exit code."""
        args = self.parse(words)
        args.func(args, [])
