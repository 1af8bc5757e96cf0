"""All signatures: those of this package, of other installed packages, and of the user."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from primus_core.errors import ConfigError
from primus_core.installed import data_folders
from primus_diagnose.signatures import files
from primus_diagnose.signatures.signature import Signature
from primus_machine.files import trust
from primus_machine.host import HostRoot

__all__ = ["GROUP", "OWN", "Catalogue", "built_in", "load"]

GROUP = "primus.signatures"
OWN = os.path.join(os.path.dirname(__file__), "..", "data", "signatures")
_SUFFIX = (".toml",)


class Origin(NamedTuple):
    """A file of signatures, and who brings it."""

    path: str
    source: str


class Catalogue:
    """Signatures by id, with who brings each."""

    def __init__(self) -> None:
        self.by_id: dict[str, Signature] = {}
        self.sources: dict[str, str] = {}

    def add(self, signatures: Iterable[Signature], origin: Origin) -> None:
        """Add those of a file.

        Raises:
            ConfigError: one has the id of another.
        """
        for one in signatures:
            if one.id in self.by_id:
                raise ConfigError(
                    f"two signatures have the id '{one.id}'",
                    where=origin.path,
                    why=f"one is of {self.sources[one.id]}, one of {origin.source}",
                    fix="rename one of them",
                )
            self.by_id[one.id] = one
            self.sources[one.id] = origin.source

    def __iter__(self) -> Iterator[Signature]:
        """All of them, in the order in which they were added."""
        return iter(self.by_id.values())

    def __getitem__(self, name: str) -> Signature:
        """The signature of that id."""
        return self.by_id[name]

    def matching(self, patterns: Sequence[str]) -> list[str]:
        """The ids that one of `patterns` (`oom.*`) means."""
        return [name for name in self.by_id if any(fnmatchcase(name, pattern) for pattern in patterns)]


def built_in() -> Catalogue:
    """The signatures of this package alone."""
    catalogue = Catalogue()
    for path in _in_folder(OWN):
        catalogue.add(files.read(path, is_tested=True), Origin(path, "primus-diagnose"))
    return catalogue


def load(host: HostRoot, own: Sequence[str] = ()) -> Catalogue:
    """All of them. `own`: files and folders of the user.

    Raises:
        ConfigError: a file is wrong, or two signatures have one id.
        RequestError: a file of the user's is not trusted.
    """
    catalogue = built_in()
    for folder in data_folders.installed(GROUP):
        for path in data_folders.files(folder, "signatures", _SUFFIX):
            catalogue.add(files.read(path), Origin(path, folder.source))
    opener = trust.of(host.environ).opener
    for path in (file for place in own for file in _of_user(place)):
        catalogue.add(files.read(path, opener), Origin(path, path))
    return catalogue


def _of_user(place: str) -> list[str]:
    return _in_folder(place) if os.path.isdir(place) else [place]


def _in_folder(folder: str) -> list[str]:
    return sorted(entry.path for entry in os.scandir(folder) if entry.name.endswith(_SUFFIX))
