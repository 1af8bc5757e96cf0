"""The clock of a training: how long its steps took, and how long it stood still for saves and evaluations.

This is the definition of `step_time_s`, the same for every backend. Training time begins with the first step of the
process and is all time since, except in `saving()` and `evaluating()`: data loading, compilation in the first step,
garbage collection and logging are part of it. What comes before the first step is start-up and counts nowhere.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import NamedTuple

__all__ = ["Lap", "StepClock"]


class Lap(NamedTuple):
    """What happened since the lap before, or since the process began."""

    steps: int
    tokens: int
    train_s: float
    save_s: float
    evaluation_s: float

    @property
    def step_time_s(self) -> float:
        """The mean of its steps."""
        return self.train_s / self.steps

    @property
    def tokens_per_second(self) -> float:
        """Times `step_time_s`, this is the mean number of tokens of a step."""
        return self.tokens / self.train_s


class StepClock:
    """Made once per process. Calls cost less than a microsecond each; none waits for a device."""

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        self._now = now
        self._doing = "starting"
        self._since = now()
        self.paused_s = 0.0
        """For so long has training stood still since the process began."""
        self.on_step: Callable[[], None] | None = None
        """Called when a step begins, before it is counted."""
        self.on_begin: Callable[[], None] | None = None
        """Called once, when the first step begins."""
        self._reset()

    @property
    def has_begun(self) -> bool:
        """Whether a step has begun."""
        return self._doing != "starting"

    @property
    def steps(self) -> int:
        """So many have begun since the last lap."""
        return self._steps

    def begin(self) -> None:
        """The first step begins now; later calls change nothing."""
        if self._doing == "starting":
            self._switch("training")
            if self.on_begin:
                self.on_begin()

    def step(self, tokens: int) -> None:
        """Count a step of so many tokens, over all ranks. It begins the first one."""
        self.begin()
        if self.on_step:
            self.on_step()
        self._steps += 1
        self._tokens += tokens

    def lap(self) -> Lap:
        """The steps counted since the last lap are done: their time."""
        self._switch(self._doing)
        spent = self._spent
        found = Lap(self._steps, self._tokens, spent["training"], spent["saving"], spent["evaluating"])
        self._reset()
        return found

    def saving(self) -> AbstractContextManager[None]:
        """Training stands still for a checkpoint."""
        return self._apart("saving")

    def evaluating(self) -> AbstractContextManager[None]:
        """Training stands still for an evaluation."""
        return self._apart("evaluating")

    @contextmanager
    def _apart(self, what: str) -> Iterator[None]:
        before = self._doing
        self._switch(what)
        begun = self._since
        try:
            yield
        finally:
            self._switch(before)
            self.paused_s += self._since - begun

    def _switch(self, doing: str) -> None:
        now = self._now()
        self._spent[self._doing] += now - self._since
        self._doing, self._since = doing, now

    def _reset(self) -> None:
        self._steps = self._tokens = 0
        self._spent = dict.fromkeys(("starting", "training", "saving", "evaluating"), 0.0)
