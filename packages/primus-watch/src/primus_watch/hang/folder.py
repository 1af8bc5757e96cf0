"""The files of a hang below the run directory, by which nodes come to one answer.

    hang/1/node_0.json     what node 0 sees; each node writes its own
    hang/1/answer.json     who keeps the others waiting, written once

The node that finds the hang makes the folder. The others look for it, since they may find it later themselves.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any

from primus_machine.errors import PrimusError
from primus_machine.files import plain_json, trust
from primus_machine.files.atomic import create, write_atomically

__all__ = ["FOLDER", "Folder", "current", "exists", "new"]

FOLDER, _ANSWER = "hang", "answer.json"
_MOST = 1 << 26


class Folder:
    """One hang of a run."""

    def __init__(self, path: str, environ: Mapping[str, str]) -> None:
        self.path, self._trust = path, trust.of(environ)

    def write(self, node: int, report: Mapping[str, Any]) -> None:
        """Leave what a node sees."""
        write_atomically(f"{self.path}/node_{node}.json", plain_json.dumps(report))

    def read(self, node: int) -> dict[str, Any] | None:
        """What a node left; None: nothing yet, or nothing to believe."""
        return self._json(f"node_{node}.json")

    def has(self, node: int) -> bool:
        """Whether a node has answered."""
        return os.path.exists(f"{self.path}/node_{node}.json")

    def answered_at(self) -> float | None:
        """When the answer was written; None: it is not."""
        try:
            return os.stat(f"{self.path}/{_ANSWER}").st_mtime
        except OSError:
            return None

    def answer(self, answer: Mapping[str, Any]) -> bool:
        """Write the answer. False: another node was quicker."""
        claim = f"{self.path}/answer.lock"
        try:
            with open(claim, "xb", opener=create):
                pass
        except FileExistsError:
            return False
        write_atomically(f"{self.path}/{_ANSWER}", plain_json.dumps(answer, indent=1))
        return True

    def wait(self, nodes: int, limit_s: float) -> list[int]:
        """Wait for the files of so many nodes. Those that are missing after the limit."""
        deadline = time.monotonic() + limit_s
        while (missing := [node for node in range(nodes) if not self.has(node)]) and time.monotonic() < deadline:
            time.sleep(0.2)
        return missing

    def _json(self, name: str) -> dict[str, Any] | None:
        try:
            with open(f"{self.path}/{name}", "rb", opener=self._trust.opener) as file:
                found = plain_json.loads(file.read(_MOST))
        except (OSError, ValueError, PrimusError):
            return None
        return found if isinstance(found, dict) else None


def exists(directory: str) -> bool:
    """Whether the run ever hung: one look at the file system."""
    return os.path.isdir(f"{directory}/{FOLDER}")


def current(directory: str, environ: Mapping[str, str], same_s: float) -> Folder | None:
    """The hang in hand: without an answer, or with one of less than `same_s` ago. None: there is none."""
    if not (numbers := _numbers(directory)):
        return None
    folder = Folder(f"{directory}/{FOLDER}/{numbers[-1]}", environ)
    at = folder.answered_at()
    return folder if at is None or time.time() < at + same_s else None


def new(directory: str, environ: Mapping[str, str]) -> Folder:
    """The folder of a hang that was found just now; where another node found it at this moment, its folder."""
    number = (_numbers(directory) or [0])[-1] + 1
    path = f"{directory}/{FOLDER}/{number}"
    os.makedirs(path, exist_ok=True)
    return Folder(path, environ)


def _numbers(directory: str) -> list[int]:
    try:
        return sorted(int(name) for name in os.listdir(f"{directory}/{FOLDER}") if name.isdecimal())
    except OSError:
        return []
