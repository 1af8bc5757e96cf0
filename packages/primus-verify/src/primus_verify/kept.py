"""Keeps what came of each layout, so that a verification costs once, and goes on where it was ended.

A result holds for one content: the small experiment, the framework's and Primus's files, those in PYTHONPATH, the
versions of all installed packages, and variables of Python and of the frameworks. Files count by path, size and time of
change.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import json
import os
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from primus_machine.files import trust
from primus_machine.files.atomic import write_atomically

__all__ = ["Kept", "fingerprint"]

_SUFFIXES = (".py", ".so")
_ENVIRONMENT = (
    *("PYTHON", "PYTORCH", "TORCH", "XLA_", "JAX_", "NVTE_", "NVIDIA_", "CUDA_", "CUBLAS_", "HIP", "HSA_", "ROCR_"),
    *("NCCL_", "RCCL_", "TRITON_", "LD_", "OMP_", "MKL_", "PRIMUS_TEST", "PRIMUS_TURBO"),
)
"""How the variables begin that may change what a framework computes."""
_SHOWN_DIGITS = 20


def fingerprint(packages: Sequence[str], environ: Mapping[str, str], *texts: str) -> str:
    """Return a digest of texts, of the files of Python packages or folders, and of the environment that counts."""
    digest = hashlib.sha256()
    places = [place for package in packages for place in _places(package)]
    places += filter(None, environ.get("PYTHONPATH", "").split(os.pathsep))
    variables = sorted((name, value) for name, value in environ.items() if name.startswith(_ENVIRONMENT))
    versions = sorted(f"{one.name} {one.version}" for one in importlib.metadata.distributions())
    for part in (*texts, repr(variables), *versions, *(line for place in places for line in _files(place))):
        digest.update(part.encode(errors="surrogateescape"))
        digest.update(b"\0")
    return digest.hexdigest()[:_SHOWN_DIGITS]


def _places(package: str) -> Sequence[str]:
    """Return the folders or the file of a package; one of unknown files is never the same."""
    if os.path.isdir(package):
        return (package,)
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        spec = None
    if spec is None:
        return (f"{package} {uuid.uuid4()}",)
    return sorted(spec.submodule_search_locations or filter(None, [spec.origin]))


def _files(place: str) -> Iterator[str]:
    yield place
    if os.path.isfile(place):
        yield _line(place)
    seen: set[str] = set()
    for folder, folders, names in os.walk(place, followlinks=True):
        real = os.path.realpath(folder)
        folders[:] = [] if real in seen else sorted(folders)  # a link may lead back to where it is
        seen.add(real)
        paths = (os.path.join(folder, name) for name in sorted(names) if name.endswith(_SUFFIXES))
        yield from (_line(path) for path in paths if os.path.exists(path))  # an editor's lock is a link to nothing


def _line(path: str) -> str:
    status = os.stat(path)
    return f"{path} {status.st_size} {status.st_mtime_ns}"


class Kept:
    """A folder with one file for each layout that was trained."""

    def __init__(self, folder: str, environ: Mapping[str, str]) -> None:
        self.folder, self.environ = folder, environ

    def read(self, layout: str) -> dict[str, Any] | None:
        """Return what was kept of a layout; None: nothing that can be read, or that others could have written."""
        if trust.of(self.environ).doubt_place(self._path(layout)):
            return None
        try:
            with open(self._path(layout), encoding="utf-8") as file:
                found: dict[str, Any] = json.load(file)
        except (OSError, ValueError):
            return None
        return found if {"status", "findings", "worst"} <= found.keys() else None

    def write(self, layout: str, result: Mapping[str, Any]) -> None:
        """Keep it. Without room for it, the next verification trains again."""
        try:
            os.makedirs(self.folder, mode=0o700, exist_ok=True)
            write_atomically(self._path(layout), json.dumps(result, indent=1))
        except OSError:
            return

    def forget(self, layouts: Iterable[str]) -> None:
        """Train these again."""
        for layout in layouts:
            with suppress(FileNotFoundError):
                os.unlink(self._path(layout))

    def _path(self, layout: str) -> str:
        return os.path.join(self.folder, f"{layout.replace(',', '+')}.json")
