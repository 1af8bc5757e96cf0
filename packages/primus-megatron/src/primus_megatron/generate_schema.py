"""Writes Megatron's argument list as data, from its own parser, so that planning needs no Megatron.

python -m primus_megatron.generate_schema FILE [CHECKOUT]     (without CHECKOUT: of the installed Megatron)
"""

from __future__ import annotations

import argparse
import enum
import json
import sys
from pathlib import Path
from typing import Any

from primus_megatron.installation import importable_version

__all__ = ["generate"]

Row = dict[str, Any]
_SIMPLE = {int: "int", float: "float", str: "str", bool: "bool", None: "str"}


def generate() -> dict[str, Any]:
    """The schema of the installed Megatron, as JSON values."""
    from megatron.training.arguments import add_megatron_arguments

    parser = add_megatron_arguments(argparse.ArgumentParser(allow_abbrev=False))
    actions = [action for action in parser._actions if action.dest != "help"]  # noqa: SLF001  # argparse lists them nowhere else
    return {
        "version": importable_version(),
        "options": {action.dest: _row(action) for action in sorted(actions, key=lambda action: action.dest)},
    }


def _row(action: argparse.Action) -> Row:
    row: Row = {"type": _type(action), "default": _plain(action.default)}
    if action.choices:
        row["choices"] = [_plain(choice) for choice in action.choices]
    if action.default is None:
        row["optional"] = True
    if action.nargs not in (None, 0, "?") and action.type in (int, float):
        row["items"] = _SIMPLE[action.type]
    return row | ({"help": " ".join(action.help.split())} if action.help else {})


def _type(action: argparse.Action) -> str:
    """A switch (`--x`, `--no-x`) is a bool; a type of Megatron's own may take text, numbers or lists."""
    if action.nargs == 0:
        return "bool"
    if action.nargs not in (None, "?"):
        return "list"
    if action.choices and isinstance(next(iter(action.choices)), enum.Enum):
        return "str"
    return _SIMPLE.get(action.type, "any")  # type: ignore[arg-type]  # any callable may be a type


def _plain(value: Any) -> Any:
    return value.name if isinstance(value, enum.Enum) else value


def main(file: str, checkout: str = "") -> None:
    """Write the schema."""
    if checkout:
        sys.path.insert(0, checkout)
    Path(file).write_text(json.dumps(generate(), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
