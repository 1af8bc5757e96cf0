"""Whether what a plan requires is here, as the run would find it: with its own PATH and PYTHONPATH. Imports nothing."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from primus_core.errors import MachineError
from primus_core.plan import Requirement

__all__ = ["check", "is_here"]


def check(requires: Iterable[Requirement], environ: Mapping[str, str]) -> None:
    """Refuse a run that misses one of them.

    Raises:
        MachineError: with what a person can do about it.
    """
    nouns = {"module": "the Python module", "command": "the command", "file": "the file", "folder": "the folder"}
    for needed in requires:
        if not is_here(needed, environ):
            lacks = "cannot be written in" if needed.kind == "folder" else "is not here"
            raise MachineError(f"{nouns[needed.kind]} '{needed.name}' {lacks}", fix=needed.fix)


def is_here(needed: Requirement, environ: Mapping[str, str]) -> bool:
    """Whether a run with `environ` finds it."""
    if needed.kind == "file":
        return os.path.exists(needed.name)
    if needed.kind == "folder":
        return _can_be_written_in(needed.name)
    if needed.kind == "command":
        import shutil

        return shutil.which(needed.name, path=environ.get("PATH")) is not None
    return _is_importable(needed.name) or _is_below(needed.name, environ.get("PYTHONPATH", "").split(os.pathsep))


def _can_be_written_in(folder: str) -> bool:
    folder = os.path.abspath(folder)
    while not os.path.lexists(folder):
        folder = os.path.dirname(folder)
    return os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK)


def _is_importable(module: str) -> bool:
    from importlib.util import find_spec

    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _is_below(module: str, folders: list[str]) -> bool:
    """Whether a module lies in folders that this process does not know: those of a saved run's PYTHONPATH."""
    from importlib.machinery import PathFinder

    path: list[str] | None = [folder for folder in folders if folder]
    whole = ""
    for part in module.split("."):
        whole = f"{whole}.{part}" if whole else part
        spec = PathFinder.find_spec(whole, path) if path else None
        if spec is None:
            return False
        path = list(spec.submodule_search_locations or ())
    return True
