"""The traces of a run directory: where the frameworks' profilers leave them."""

from __future__ import annotations

import glob
import os

__all__ = ["files"]

_PLACES = ("traces", "torch_profile", "profiling/traces", "tensorboard/plugins/profile")
"""`traces` with `--profile`; the others where a framework's own settings say nothing else."""
_SUFFIXES = (".json", ".json.gz")


def files(directory: str) -> list[str]:
    """The trace files, in their order; a file that two places lead to once."""
    found: dict[str, str] = {}
    for place in _PLACES:
        for path in glob.glob(f"{glob.escape(directory)}/{place}/**", recursive=True):
            if path.endswith(_SUFFIXES) and os.path.isfile(path):
                found.setdefault(os.path.realpath(path), path)
    return sorted(found.values())
