"""Keeps what came of each layout, so that a verification costs once, and goes on where it was ended.

A result holds for one content: its `fingerprint`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from primus_machine.files import trust
from primus_machine.files.atomic import write_atomically

__all__ = ["RESULT", "Kept"]

RESULT = {"layout", "ranks", "status", "why", "seconds", "worst", "findings"}
"""The keys of what is kept of a layout."""


def _is_result(found: Mapping[str, Any], layout: str) -> bool:
    """Return whether it is what `session.Result.to_dict` returns of this layout, and says what was measured."""
    return (
        found.keys() >= RESULT
        and found["layout"] == layout
        and found["status"] in ("equal", "differs")
        and isinstance(found["worst"], dict)
        and isinstance(found["findings"], list)
        and all(isinstance(one, dict) and one.keys() >= {"text", "names"} for one in found["findings"])
        and bool(found["worst"] if found["status"] == "equal" else found["findings"])
    )


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
                found: Any = json.load(file)
        except (OSError, ValueError):
            return None
        return found if isinstance(found, dict) and _is_result(found, layout) else None

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
            with suppress(OSError):  # what cannot be removed is no file that `read` would take
                os.unlink(self._path(layout))

    def _path(self, layout: str) -> str:
        return os.path.join(self.folder, f"{layout.replace(',', '+')}.json")
