"""TorchTitan's argument list and model families as data: the shipped file for the installed version, or its answer."""

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

SUPPORTED = ((0, 3), (0, 4))
"""TorchTitan from the first, before the second."""


@dataclass(frozen=True, slots=True)
class Schema:
    """What one version of TorchTitan takes."""

    version: str
    options: Mapping[str, Option]
    families: Mapping[str, Mapping[str, Mapping[str, Any]]]
    """Per family and flavor the sizes that the checks before a launch need."""
    schedules: Mapping[str, str]
    """Pipeline schedules: `single` or `multi` stages per rank."""
    datasets: tuple[str, ...]


def shipped() -> dict[str, Path]:
    """The schema files of this package by version, oldest first."""
    return schemas.shipped(Path(__file__).parent / "schemas", "torchtitan")


@functools.cache
def load(path: Path) -> Schema:
    """The schema in a file."""
    data = json.loads(path.read_text(encoding="utf-8"))
    version, known = options.load(path)
    return Schema(version, known, data["families"], data["schedules"], tuple(data["datasets"]))


def schema_for(version: str, python: str) -> tuple[Schema, tuple[str, ...]]:
    """The schema for an installed `version` (empty: none is installed), and what to tell about it.

    Raises:
        MachineError: the installed version is one that this package does not know how to run.
    """
    if version and not SUPPORTED[0] <= versions.release(version)[:2] < SUPPORTED[1]:
        raise MachineError(
            f"torchtitan {version} is installed, and primus-torchtitan runs 0.3.x",
            why="its configuration and trainer differ from version to version",
            fix="pip install 'torchtitan>=0.3,<0.4'",
        )
    command = [python, "-m", "primus_torchtitan.generate_schema", "{}"]
    return schemas.of_version("torchtitan", version, shipped(), load, command)
