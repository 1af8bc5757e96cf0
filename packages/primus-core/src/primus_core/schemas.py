"""The schemas that a backend ships, one JSON file for each version of its framework, or the framework's own answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from primus_core.errors import MachineError

__all__ = ["asked", "numbers", "shipped"]

T = TypeVar("T")
_SAID = 2000


def shipped(folder: Path, framework: str) -> dict[str, Path]:
    """The files `<framework>-<version>.json` of a folder by version, oldest first."""
    found = {file.stem.removeprefix(f"{framework}-"): file for file in folder.glob(f"{framework}-*.json")}
    return dict(sorted(found.items(), key=lambda item: numbers(item[0])))


def numbers(version: str) -> tuple[int, ...]:
    """`0.19.2rc1+cpu` as (0, 19, 21)."""
    digits = ("".join(filter(str.isdigit, part)) for part in version.split("+", maxsplit=1)[0].split("."))
    return tuple(int(part) for part in digits if part)


def asked(framework: str, command: Sequence[str], read: Callable[[Path], T]) -> T:
    """What `read` makes of the file that `command` writes, where the framework is imported: `{}` in it is the file.

    `framework`: with its version, for the error.

    Raises:
        MachineError: the framework could not be asked.
    """
    import subprocess  # this and the next only where a version has no shipped schema
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder, "schema.json")
        words = [str(answer) if word == "{}" else word for word in command]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            raise MachineError(f"{framework} could not be asked for its settings", why=done.stderr.strip()[-_SAID:])
        return read(answer)
