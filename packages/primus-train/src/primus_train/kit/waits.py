"""How long this rank works in each step, without the time for which it waits for other ranks.

In a synchronous training all ranks take equally long for a step: the quick ones wait in collectives for the slow one.
What differs is the rest of the step, and `primus-watch` compares it. Each rank leaves it in a small file now and then:

    waiting/rank_3.json    {"rank": 3, "host": "node17", "group": "", "started": ..., "time": ...,
                            "steps": [[number, own_s, waited_s], ...]}

It sees waits that block the process: torch's `Work.wait` with gloo. NCCL and RCCL wait on the GPU, and JAX inside a
program.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Self

from primus_machine.files.atomic import write_atomically

__all__ = ["FOLDER", "Waits"]

FOLDER = "waiting"
_MOST_STEPS = 256
_PAUSED = 0.01
"""Less of a step is no save, but the look whether one is due."""
_EVERY_S, _FILES_PER_S = 10.0, 32
"""A shared file system gets at most so many of these files in a second, and those of neighbours at about one time: with
short steps, they would have no step in common."""


class Waits:
    """Made once per process. A step and a wait cost about a microsecond each."""

    def __init__(self, directory: str, rank: int, world: int, now: Callable[[], float] = time.perf_counter) -> None:
        self.group = ""
        """Ranks with the same work, which may be compared: a pipeline's stage."""
        self._path, self._rank, self._now = f"{directory}/{FOLDER}/rank_{rank}.json", rank, now
        self._every_s = max(_EVERY_S, world / _FILES_PER_S)
        self._steps: deque[tuple[int, float, float]] = deque(maxlen=_MOST_STEPS)
        self._started, self._since, self._waited, self._paused_s = 0.0, 0.0, 0.0, 0.0
        self._written = self._turn()

    @classmethod
    def of_torch(cls, directory: str, rank: int, world: int) -> Self | None:
        """Those of a program with `torch.distributed` that is one of several ranks; None: of another one."""
        distributed = sys.modules.get("torch.distributed")
        if not distributed or world < 2 or not directory or not hasattr(distributed, "Work"):
            return None
        waits = cls(directory, rank, world)
        distributed.Work.wait = waits.around(distributed.Work.wait)
        return waits

    def around(self, wait: Callable[..., Any]) -> Callable[..., Any]:
        """`wait`, and its time counted."""
        now = self._now

        @functools.wraps(wait)
        def counted(*args: Any, **kwargs: Any) -> Any:
            begun = now()
            try:
                return wait(*args, **kwargs)
            finally:
                self._waited += now() - begun

        return counted

    def step(self, ended: int | None, paused_s: float) -> None:
        """A step begins, and the one before it has `ended`; None: its number is not known. `paused_s`: for so long has
        training stood still; a step with a save in it tells nothing.
        """
        now = self._now()
        if not self._started:
            self._started = time.time()
        elif ended is not None and paused_s - self._paused_s < _PAUSED * (now - self._since):
            self._steps.append((ended, now - self._since - self._waited, self._waited))
        if (turn := self._turn()) > self._written and self._steps:
            self._write()
            self._written = turn
        self._since, self._waited, self._paused_s = self._now(), 0.0, paused_s

    def _turn(self) -> int:
        return int((time.time() - self._rank / _FILES_PER_S) // self._every_s)

    def _write(self) -> None:
        found = {
            "rank": self._rank,
            "host": os.uname().nodename,
            "group": self.group,
            "started": self._started,
            "time": time.time(),
            "steps": [(step, round(own, 6), round(waited, 6)) for step, own, waited in self._steps],
        }
        with suppress(OSError):  # a training does not end for this
            os.makedirs(os.path.dirname(self._path), exist_ok=True)
            write_atomically(self._path, json.dumps(found), durable=False)
