"""TorchTitan's argument list and model families as data: the shipped file for the installed version, or its answer."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from primus_core import options
from primus_core.errors import MachineError
from primus_core.options import Option

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
    files = (Path(__file__).parent / "schemas").glob("torchtitan-*.json")
    found = {file.stem.removeprefix("torchtitan-"): file for file in files}
    return dict(sorted(found.items(), key=lambda item: _numbers(item[0])))


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
    files = shipped()
    newest = list(files)[-1]
    if not version:
        return load(files[newest]), (f"torchtitan is not installed here: planned for {newest}",)
    if version in files:
        return load(files[version]), ()
    if not SUPPORTED[0] <= _numbers(version)[:2] < SUPPORTED[1]:
        raise MachineError(
            f"torchtitan {version} is installed, and primus-torchtitan runs 0.3.x",
            why="its configuration and trainer differ from version to version",
            fix="pip install 'torchtitan>=0.3,<0.4'",
        )
    return _asked(version, python), (f"torchtitan {version} has no shipped settings list, so it was asked (slow)",)


def _numbers(version: str) -> tuple[int, ...]:
    digits = ("".join(filter(str.isdigit, part)) for part in version.split("+", maxsplit=1)[0].split("."))
    return tuple(int(part) for part in digits if part)


def _asked(version: str, python: str) -> Schema:
    """The framework's own answer, in a process of its own."""
    import subprocess  # this and the next only where a version has no shipped schema
    import tempfile

    command = [python, "-m", "primus_torchtitan.generate_schema"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise MachineError(f"torchtitan {version} could not be asked for its settings", why=done.stderr.strip()[-2000:])
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder, "schema.json")
        answer.write_text(done.stdout[done.stdout.index("{") :], encoding="utf-8")
        return load(answer)
