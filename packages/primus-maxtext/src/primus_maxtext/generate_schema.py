"""Writes MaxText's settings and named models as data, from its own configuration classes and files.

python -m primus_maxtext.generate_schema FILE
"""

from __future__ import annotations

import enum
import json
import sys
import types
import typing
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

__all__ = ["generate"]

Row = dict[str, Any]
_SIMPLE = {int: "int", float: "float", str: "str", bool: "bool", list: "list", dict: "dict"}


def generate() -> dict[str, Any]:
    """The schema of the installed MaxText, as JSON values."""
    from maxtext.configs import types as settings
    from maxtext.utils.globals import MAXTEXT_CONFIGS_DIR

    defaults = _yaml(Path(MAXTEXT_CONFIGS_DIR, "base.yml"))
    derived = set(settings.DerivedValues.model_fields)
    fields = {name: field for name, field in settings.MaxTextConfig.model_fields.items() if name not in derived}
    return {
        "version": version("maxtext"),
        "options": {name: _row(fields[name], name, defaults) for name in sorted(fields)},
        "models": {file.stem: _yaml(file) for file in sorted(Path(MAXTEXT_CONFIGS_DIR, "models").glob("*.yml"))},
    }


def _yaml(file: Path) -> dict[str, Any]:
    """As MaxText reads it: `1.e-5` is a number there."""
    from omegaconf import OmegaConf

    found: Any = OmegaConf.to_container(OmegaConf.load(file), resolve=True)
    return {str(key): value for key, value in found.items()}


def _row(field: Any, name: str, defaults: Mapping[str, Any]) -> Row:
    kind, optional, choices = _type(field.annotation)
    default = defaults[name] if name in defaults else _plain(field.get_default(call_default_factory=True))
    default = None if default == "None" else default
    row: Row = {"type": kind, "default": default}
    if choices:
        row["choices"] = choices
    if optional or default is None:
        row["optional"] = True
    row |= _range(kind, [field, *typing.get_args(field.annotation)])
    return row | ({"help": " ".join(field.description.split())} if field.description else {})


def _range(kind: str, places: list[Any]) -> Row:
    """The smallest and the largest number. A fraction that must be more than 0 may be 0 here."""
    found: Row = {}
    for rule in (rule for place in places for rule in getattr(place, "metadata", ())):
        if (least := getattr(rule, "ge", None)) is not None:
            found["least"] = least
        elif (below := getattr(rule, "gt", None)) is not None:
            found["least"] = below + 1 if kind == "int" else below
        elif (most := getattr(rule, "le", None)) is not None:
            found["most"] = most
    return found


def _type(annotation: Any) -> tuple[str, bool, list[Any]]:
    """The type of values, whether there may be none, and the values where they are a few."""
    origin, inside = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        kinds = [_type(item) for item in inside if item is not types.NoneType]
        one = kinds[0] if len({kind for kind, _, _ in kinds}) == 1 else (_widest([k for k, _, _ in kinds]), False, [])
        return one[0], types.NoneType in inside, one[2]
    if origin is typing.Annotated:
        return _type(inside[0])
    if origin is typing.Literal:
        return "str", False, list(inside)
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return ("int" if issubclass(annotation, int) else "str"), False, [member.value for member in annotation]
    return _SIMPLE.get(origin or annotation, "dict" if hasattr(annotation, "model_fields") else "any"), False, []


def _widest(kinds: list[str]) -> str:
    return "float" if set(kinds) == {"int", "float"} else "any"


def _plain(value: Any) -> Any:
    if isinstance(value, enum.Enum):
        return value.value
    return value.model_dump(mode="json") if hasattr(value, "model_dump") else value


def main(file: str) -> None:
    """Write the schema."""
    Path(file).write_text(json.dumps(generate(), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
