"""Megatron's argument list as data: the shipped file for the installed version, or the framework's answer."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from primus_core.errors import MachineError
from primus_megatron.installation import Installation
from primus_train.kit import schemas, versions
from primus_train.kit.options import Option

__all__ = ["Schema", "load", "place", "schema_for", "shipped"]

SUPPORTED = ((0, 17), (0, 20))
"""megatron-core from the first, before the second: it has brought its training loop along since 0.17."""


@dataclass(frozen=True, slots=True)
class Schema:
    """What one version of Megatron takes."""

    version: str
    options: Mapping[str, Option]
    items: Mapping[str, str]
    """`int` or `float` for lists of numbers."""


def shipped() -> dict[str, Path]:
    """The schema files of this package by version, oldest first."""
    return schemas.shipped(Path(__file__).parent / "schemas", "megatron")


@functools.cache
def load(path: Path) -> Schema:
    """The schema in a file."""
    data = json.loads(path.read_text(encoding="utf-8"))
    items = {name: row.pop("items") for name, row in data["options"].items() if "items" in row}
    known = {
        n: Option(name=n, **{**row, "choices": tuple(row.get("choices", ()))}) for n, row in data["options"].items()
    }
    return Schema(data["version"], known, items)


def schema_for(megatron: Installation, python: str) -> tuple[Schema, tuple[str, ...]]:
    """The schema for the Megatron that will run, and what to tell about it.

    Raises:
        MachineError: its version is one that this package does not know how to run.
    """
    files = shipped()
    version = megatron.version if megatron.known or megatron.version in files else ""
    if version and not SUPPORTED[0] <= versions.release(version)[:2] < SUPPORTED[1]:
        raise MachineError(
            f"megatron-core {version} is {place(megatron)}, and primus-megatron runs 0.17, 0.18 and 0.19",
            why="how its training loop is called differs from version to version; before 0.17 it had none",
            fix="check out one of these" if megatron.checkout else "pip install 'megatron-core>=0.17,<0.20'",
        )
    command = [python, "-m", "primus_megatron.generate_schema", "{}", *filter(None, [megatron.checkout])]
    schema, notes = schemas.of_version("megatron-core", version, files, load, command)
    here = (f"megatron-core {version} is {place(megatron)}",) if version and megatron.checkout else ()
    return schema, (*here, *notes)


def place(megatron: Installation) -> str:
    """Where it is, to say after its name."""
    return f"in {megatron.checkout}" if megatron.checkout else "installed"
