"""Keeps what came of each layout, so that a verification costs once, and goes on where it was ended.

A result holds for one content: the small experiment, the framework's and Primus's files, the versions
of all installed packages, and variables of Python and of the frameworks.
Files count by path, size and time of change.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from primus_machine.files.atomic import write_atomically

__all__ = ["Kept", "fingerprint"]

_SUFFIXES = (".py", ".so")
_ENVIRONMENT = (
    *("PYTHON", "PYTORCH", "TORCH", "XLA_", "JAX_", "NVTE_", "NVIDIA_", "CUDA_", "CUBLAS_", "HIP", "HSA_", "ROCR_"),
    *("NCCL_", "RCCL_", "TRITON_", "LD_", "OMP_", "MKL_", "PRIMUS_TEST", "PRIMUS_TURBO"),
)
"""How the variables begin that may change what a framework computes."""
_SHOWN_DIGITS = 20


def fingerprint(packages: tuple[str, ...], environ: Mapping[str, str], *texts: str) -> str:
    """Return a digest of texts, of the files of Python packages, and of the environment that counts."""
    digest = hashlib.sha256()
    variables = sorted((name, value) for name, value in environ.items() if name.startswith(_ENVIRONMENT))
    versions = sorted(f"{one.name} {one.version}" for one in importlib.metadata.distributions())
    for part in (*texts, repr(variables), *versions, *(line for package in packages for line in _files(package))):
        digest.update(part.encode(errors="surrogateescape"))
        digest.update(b"\0")
    return digest.hexdigest()[:_SHOWN_DIGITS]


def _files(package: str) -> Iterator[str]:
    spec = importlib.util.find_spec(package)
    for place in sorted((spec.submodule_search_locations or ()) if spec else ()):
        for folder, folders, names in os.walk(place):
            folders.sort()
            for name in sorted(names):
                if name.endswith(_SUFFIXES):
                    status = os.stat(os.path.join(folder, name))
                    yield f"{folder}/{name} {status.st_size} {status.st_mtime_ns}"


class Kept:
    """A folder with one file for each layout that was trained."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def read(self, layout: str) -> dict[str, Any] | None:
        """Return what was kept of a layout; None: nothing, or nothing that can be read."""
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
