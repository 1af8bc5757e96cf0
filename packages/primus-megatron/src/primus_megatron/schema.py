"""Megatron's argument list as data: the shipped file for the installed version, or the framework's answer."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from primus_core.errors import MachineError
from primus_core.options import Option

__all__ = ["Schema", "load", "schema_for", "shipped"]

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
    files = (Path(__file__).parent / "schemas").glob("megatron-*.json")
    found = {file.stem.removeprefix("megatron-"): file for file in files}
    return dict(sorted(found.items(), key=lambda item: _numbers(item[0])))


@functools.cache
def load(path: Path) -> Schema:
    """The schema in a file."""
    data = json.loads(path.read_text(encoding="utf-8"))
    items = {name: row.pop("items") for name, row in data["options"].items() if "items" in row}
    known = {
        n: Option(name=n, **{**row, "choices": tuple(row.get("choices", ()))}) for n, row in data["options"].items()
    }
    return Schema(data["version"], known, items)


def schema_for(version: str, python: str) -> tuple[Schema, tuple[str, ...]]:
    """The schema for an installed `version` (empty: none is installed), and what to tell about it.

    Raises:
        MachineError: the installed version is one that this package does not know how to run.
    """
    files = shipped()
    newest = list(files)[-1]
    if not version:
        return load(files[newest]), (f"megatron-core is not installed here: planned for {newest}",)
    if version in files:
        return load(files[version]), ()
    if not SUPPORTED[0] <= _numbers(version)[:2] < SUPPORTED[1]:
        raise MachineError(
            f"megatron-core {version} is installed, and primus-megatron runs 0.17, 0.18 and 0.19",
            why="how its training loop is called differs from version to version; before 0.17 it had none",
            fix="pip install 'megatron-core>=0.17,<0.20'",
        )
    return _asked(version, python), (f"megatron-core {version} has no shipped settings list, so it was asked (slow)",)


def _numbers(version: str) -> tuple[int, ...]:
    digits = ("".join(filter(str.isdigit, part)) for part in version.split("+", maxsplit=1)[0].split("."))
    return tuple(int(part) for part in digits if part)


def _asked(version: str, python: str) -> Schema:
    """The framework's own answer, in a process of its own."""
    import subprocess  # this and the next only where a version has no shipped schema
    import tempfile

    command = [python, "-m", "primus_megatron.generate_schema"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise MachineError(f"megatron-core {version} could not be asked for its settings", why=done.stderr[-2000:])
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder, "schema.json")
        answer.write_text(done.stdout[done.stdout.index("{") :], encoding="utf-8")
        return load(answer)
