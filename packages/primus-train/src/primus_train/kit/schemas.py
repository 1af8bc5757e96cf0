"""The schemas that a backend ships, one JSON file for each version of its framework, or the framework's own answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from primus_core.errors import MachineError
from primus_train.kit import versions

__all__ = ["of_version", "shipped"]

T = TypeVar("T")
_SAID = 2000


def shipped(folder: Path, framework: str) -> dict[str, Path]:
    """The files `<framework>-<version>.json` of a folder by version, oldest first."""
    found = {file.stem.removeprefix(f"{framework}-"): file for file in folder.glob(f"{framework}-*.json")}
    return dict(sorted(found.items(), key=lambda item: versions.order(item[0])))


def of_version(
    framework: str, version: str, files: Mapping[str, Path], read: Callable[[Path], T], command: Sequence[str]
) -> tuple[T, tuple[str, ...]]:
    """The schema of an installed version (empty: none is installed), and what to tell about it.

    Args:
        framework: as the person knows it.
        version: of which the shipped file is read, or that of the newest.
        files: the shipped ones, oldest first.
        read: makes a schema of a file.
        command: writes the file of a version that is not shipped, where the framework can be imported: `{}` in it is
            the file.

    Raises:
        MachineError: the framework could not be asked.
    """
    newest = list(files)[-1]
    if not version:
        return read(files[newest]), (f"{framework} is not installed here: planned for {newest}",)
    if version in files:
        return read(files[version]), ()
    note = f"{framework} {version} has no settings list in this package, so it was imported to get one (slow)"
    return _asked(f"{framework} {version}", command, read), (note,)


def _asked(framework: str, command: Sequence[str], read: Callable[[Path], T]) -> T:
    import subprocess  # this and the next only where a version has no shipped schema
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder, "schema.json")
        words = [str(answer) if word == "{}" else word for word in command]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            raise MachineError(
                f"{framework} could not be imported to get its settings", why=done.stderr.strip()[-_SAID:]
            )
        return read(answer)
