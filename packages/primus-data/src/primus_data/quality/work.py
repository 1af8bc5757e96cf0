"""The folder of unfinished work, `<output>.unfinished`: what is done already, and which pipeline it belongs to.

pipeline.json     the pipeline, the input and the versions: another one does not continue this work
lock              held while a process works here
done/<stage>/     a file for each finished task, with what the report says of it; it appears last
<stage>/, output/ documents between passes, and what is kept
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from primus_core.errors import MachineError, RequestError
from primus_data.quality.stages import Stage
from primus_machine.files import plain_json, trust
from primus_machine.files.atomic import PRIVATE_FOLDER, write_atomically
from primus_machine.host import HostRoot

__all__ = ["Work"]

_NODES_APART_S = 600.0
"""So much later node 0 may begin."""
_PATIENCE_S = 5.0
"""So long the workers of a process that was killed may need to end."""


class Work:
    """The folder."""

    def __init__(self, output: str, node_rank: int = 0) -> None:
        self.output = output.rstrip("/")
        self.folder = f"{self.output}.unfinished"
        self.report = f"{self.output}.report"
        self.node_rank = node_rank
        self.lock = f"{self.folder}/lock-{node_rank}"

    @property
    def is_published(self) -> bool:
        """Whether all is done, and the output has its name."""
        return os.path.lexists(self.output)

    @contextmanager
    def opened(self, identity: Mapping[str, Any]) -> Iterator[None]:
        """Begin the work, or continue it.

        Raises:
            RequestError: the output is there already; another process works on it; or what is there is the
                unfinished work of another pipeline, or another user's.
        """
        if self.is_published:
            raise RequestError(f"the output '{self.output}' already exists", fix="remove it, or name another output")
        os.makedirs(os.path.dirname(os.path.abspath(self.folder)), exist_ok=True)
        with suppress(FileExistsError):
            os.mkdir(self.folder, PRIVATE_FOLDER)
        trust.of(HostRoot().environ).require(self.folder, "the unfinished work in")  # it may hold links
        with open(self.lock, "a", encoding="utf-8") as lock:
            self._lock(lock.fileno())
            self._claim(identity)
            yield

    def _lock(self, descriptor: int) -> None:
        end = time.monotonic() + _PATIENCE_S
        while True:
            try:
                return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > end:
                    why = f"it holds the lock {self.lock}"
                    raise RequestError(f"another process writes '{self.output}'", why=why, fix="wait for it") from None
                time.sleep(0.1)

    def _claim(self, identity: Mapping[str, Any]) -> None:
        path, now = f"{self.folder}/pipeline.json", json.loads(json.dumps(identity))
        end, differences = time.monotonic() + _NODES_APART_S, [f"there is no '{path}'"]
        while not os.path.exists(path) or (differences := list(_differences(self._json(path), now, ""))):
            if os.path.exists(f"{self.folder}/done") or time.monotonic() > end:
                raise self._of_another(differences)
            if not self.node_rank:  # another pipeline that has finished nothing
                self._clear()
                write_atomically(path, json.dumps(identity, indent=1))
            time.sleep(0.1 * bool(self.node_rank))

    def _clear(self) -> None:
        for name in os.listdir(self.folder):
            if os.path.isdir(f"{self.folder}/{name}"):
                self.drop(name)

    def _of_another(self, differences: list[str]) -> RequestError:
        return RequestError(
            f"'{self.folder}' holds the unfinished work of another pipeline",
            why="\n".join(differences[:10]),
            fix=f"restore what differs to continue it; or remove the folder '{self.folder}' to start over",
        )

    @staticmethod
    def _json(path: str) -> dict[str, Any]:
        try:
            with open(path, "rb") as file:
                found = plain_json.loads(file.read())
        except ValueError as error:
            raise MachineError(f"'{path}' is damaged", why=str(error), fix="remove the folder to start over") from None
        if not isinstance(found, dict):
            raise MachineError(f"'{path}' is damaged", fix="remove the folder to start over")
        return found

    def _done_file(self, stage: Stage, number: int) -> str:
        return f"{self.folder}/done/{stage.name}/{number:05d}.json"

    def missing(self, stage: Stage) -> list[int]:
        """The tasks of a stage that are not done."""
        return [number for number in range(stage.tasks) if not os.path.exists(self._done_file(stage, number))]

    def finish(self, stage: Stage, number: int, result: Mapping[str, Any]) -> None:
        """A task is done: it will not be done again."""
        path = self._done_file(stage, number)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        write_atomically(path, json.dumps(result))

    def results(self, stage: Stage) -> list[dict[str, Any]]:
        """What the tasks of a stage have returned, in the order of the input."""
        return [self._json(self._done_file(stage, number)) for number in range(stage.tasks)]

    def drop(self, name: str) -> None:
        """A folder in it is no longer needed."""
        shutil.rmtree(f"{self.folder}/{name}", ignore_errors=True)

    def publish(self, report: str) -> None:
        """All is done: the report, then the documents get their final names. `report`: its folder in this one."""
        if os.path.exists(report):  # a process that was killed here may have come so far
            shutil.rmtree(self.report, ignore_errors=True)
            os.rename(report, self.report)
        os.rename(f"{self.folder}/output", self.output)
        shutil.rmtree(self.folder, ignore_errors=True)


def _differences(before: Any, now: Any, path: str) -> Iterator[str]:
    """What is not the same, one line each."""
    if isinstance(before, dict) and isinstance(now, dict):
        for key in dict.fromkeys([*before, *now]):
            yield from _differences(before.get(key), now.get(key), f"{path}.{key}" if path else str(key))
    elif isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        for index, (old, new) in enumerate(zip(before, now, strict=True)):
            yield from _differences(old, new, f"{path}[{index}]")
    elif before != now:
        yield f"{path}: {_short(before)} then, {_short(now)} now"


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
