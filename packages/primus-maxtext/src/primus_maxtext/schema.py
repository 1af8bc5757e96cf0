"""MaxText's settings and named models as data: the shipped file of the installed version, or MaxText's answer."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from primus_core.errors import MachineError
from primus_train.kit import options, schemas, versions
from primus_train.kit.options import Option

__all__ = ["Schema", "load", "schema_for", "shipped"]

SUPPORTED = ((0, 2, 5), (0, 3))
"""MaxText from the first, before the second."""


@dataclass(frozen=True, slots=True)
class Schema:
    """What one version of MaxText takes."""

    version: str
    options: Mapping[str, Option]
    models: Mapping[str, Mapping[str, Any]]
    """The settings that a `model_name` stands for."""


def shipped() -> dict[str, Path]:
    """The schema files of this package by version, oldest first."""
    return schemas.shipped(Path(__file__).parent / "schemas", "maxtext")


@functools.cache
def load(path: Path) -> Schema:
    """The schema in a file."""
    data = json.loads(path.read_text(encoding="utf-8"))
    version, known = options.load(path)
    return Schema(version, known, data["models"])


def schema_for(version: str, python: str) -> tuple[Schema, tuple[str, ...]]:
    """The schema for an installed `version` (empty: none is installed), and what to tell about it.

    Raises:
        MachineError: the installed version is one that this package does not know how to run.
    """
    if version and not SUPPORTED[0] <= versions.release(version) < SUPPORTED[1]:
        raise MachineError(
            f"maxtext {version} is installed, and primus-maxtext runs 0.2.5 and later 0.2.x",
            why="its configuration and training loop differ from version to version",
            fix="pip install 'maxtext>=0.2.5,<0.3'",
        )
    command = [python, "-m", "primus_maxtext.generate_schema", "{}"]
    return schemas.of_version("maxtext", version, shipped(), load, command)
