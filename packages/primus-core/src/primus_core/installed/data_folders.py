"""Folders of data that installed packages bring by entry point, as GPU profiles and models. Nothing is imported."""

from __future__ import annotations

import os
from typing import NamedTuple

from primus_machine import packages
from primus_machine.errors import ConfigError

__all__ = ["KINDS", "Folder", "files", "installed", "require"]

KINDS = frozenset({"after_failure", "defaults", "models", "profiles", "recipes", "signatures"})
"""Of entry points that name no object: nothing is to be loaded, but something must be there."""


class Folder(NamedTuple):
    """A folder of data that an installed package brings."""

    path: str
    source: str
    """`acme-primus 2.1.0`."""
    name: str = ""
    """Of the entry point."""


def installed(group: str) -> tuple[Folder, ...]:
    """The folders behind the entry points of `group`. A package is found, not imported."""
    return tuple(Folder(_of(entry), entry.source, entry.name) for entry in packages.entry_points(group))


def files(folder: Folder, what: str, suffixes: tuple[str, ...]) -> list[str]:
    """The files of `folder` with one of the `suffixes`; `what` they are, for the error where it is not there."""
    try:
        entries = sorted(os.listdir(folder.path))
    except OSError as error:
        raise ConfigError(
            f"the {what} of {folder.source} are missing",
            where=folder.path,
            why=str(error.strerror),
            fix="reinstall the package, or remove it; `primus plugins` lists its entry points",
        ) from None
    return [os.path.join(folder.path, entry) for entry in entries if entry.endswith(suffixes)]


def require(entry: packages.EntryPoint) -> None:
    """Raise a ConfigError if the folder that the entry point names does not exist."""
    files(Folder(_of(entry), entry.source), entry.group.removeprefix("primus."), ())


def _of(entry: packages.EntryPoint) -> str:
    """`acme.profiles` is the folder acme/profiles; of a module in a file, the folder that the file is in."""
    from importlib.util import find_spec

    top, *below = entry.module.split(".")
    # Of the topmost package: finding a deeper one would import those above.
    spec = find_spec(top) if top else None
    paths = [os.path.join(place, *below) for place in spec.submodule_search_locations or ()] if spec else []
    files = [os.path.dirname(path) for path in paths if os.path.isfile(f"{path}.py")]
    return next(filter(os.path.isdir, [*paths, *files]), os.path.join(os.path.dirname(entry.folder), top, *below))
