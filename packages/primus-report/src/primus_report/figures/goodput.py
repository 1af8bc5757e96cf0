"""Where the time of a run went, and its goodput.

**Goodput** is the useful step time divided by wall time, over all devices: (training time of the steps that were
kept × devices) / (time in which the run held its devices × devices). A step is kept unless a later attempt did it
again, because there was no checkpoint after it. Training time of a step is `step_time_s` (docs/metrics.md), without
saves and evaluations. The rest is lost, by cause:

`start` before the first step: Primus, hooks, preparation, imports, loading; `restart` the same for a later attempt,
with the time between two attempts; `repeated` steps that were done again; `checkpoint` and `evaluation`: training
stood still (`save_s`, `evaluation_s`); `failure` from the last logged step of an attempt that failed or was interrupted
to its end: steps that no line has, waiting for a rank that hangs; `end` the same for one that ended well; `other`: the
rest, and what clocks of several hosts disagree in. A wait in the queue of a scheduler holds no device, and counts
nowhere.

**Source.** As the effective training time of MegaScale (Jiang et al., NSDI 2024, arXiv:2402.15627) and of Llama 3
(arXiv:2407.21783, §3.3.4), and the goodput of Google's `ml-goodput-measurement`; that one also takes the excess of the
first step for start-up, which is useful time here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from primus_report.figures.attempts import Attempt, Held
from primus_report.figures.records import Events
from primus_report.figures.spans import Span, kept_steps, steps_of_line
from primus_report.figures.steps import Steps

__all__ = ["CAUSES", "USEFUL", "TimeShare", "shares"]

USEFUL = "useful"
CAUSES = {
    USEFUL: "training steps that were kept",
    "repeated": "training steps that were done again",
    "checkpoint": "checkpoints that training waited for",
    "evaluation": "evaluations that training waited for",
    "start": "start, before the first step",
    "restart": "restarts, before the first step",
    "failure": "after the last logged step of a failed or interrupted attempt",
    "end": "after the last step of an attempt that ended well",
    "other": "other",
}

_NOISE_S, _NOISE = 1.0, 0.02
"""Steps that add up to so much more than the wall time, in seconds or as a share of it, were rounded."""


@dataclass(frozen=True, slots=True)
class TimeShare:
    """A part of the time in which the run held its devices."""

    cause: str
    title: str
    seconds: float
    share: float
    device_hours: float

    @property
    def is_useful(self) -> bool:
        """Whether training advanced."""
        return self.cause == USEFUL


def shares(
    steps: Steps, spans: Sequence[Span], attempts: Sequence[Attempt], held: Held, events: Events, devices: int
) -> tuple[TimeShare, ...]:
    """All parts; together they are the time in which the run held its devices. None where no line has `step_time_s`:
    what was useful is not known.
    """
    if steps and not steps.known("step_time_s"):
        return ()
    whole = attempts or [Attempt(1, held.begin, held.end, 0, None, "")]
    ledger = _Ledger(steps, spans, held, events)
    for index, attempt in enumerate(whole):
        following = whole[index + 1].started if index + 1 < len(whole) else math.inf
        ledger.attempt(attempt, following, is_first=index == 0)
    ledger.close()
    total = held.seconds
    return tuple(
        TimeShare(cause, title, seconds, seconds / total if total else 0.0, seconds * devices / 3600)
        for cause, title in CAUSES.items()
        for seconds in [ledger.spent[cause]]
    )


class _Ledger:
    """Adds up the parts, one attempt after the other."""

    def __init__(self, steps: Steps, spans: Sequence[Span], held: Held, events: Events) -> None:
        self.steps, self.spans, self.held, self.events = steps, spans, held, events
        self.kept = kept_steps(steps, spans)
        self.spent = dict.fromkeys(CAUSES, 0.0)
        self.cursor = held.begin
        """Up to here all time has its place."""
        self.done = 0
        """So many spans were added."""

    def attempt(self, attempt: Attempt, following: float, *, is_first: bool) -> None:
        """The time before it, in it, and up to its end; the next one began at `following`."""
        cause = "start" if is_first else "restart"
        self._spend(cause, self.held.between(self.cursor, attempt.started))
        self.cursor = max(attempt.started, self.cursor)
        for span, kept in self._spans(following):
            self._span(span, kept, cause)
            cause = "restart"
        self._tail(attempt, following)

    def close(self) -> None:
        """What is left after the last attempt, and what has no place."""
        self._spend("end", self.held.end - self.cursor)
        rest = self.held.seconds - sum(self.spent.values())
        noise = max(_NOISE_S, _NOISE * self.held.seconds)
        self.spent["other"] = 0.0 if -noise <= rest < 0 else rest

    def _spend(self, cause: str, seconds: float) -> None:
        self.spent[cause] += max(seconds, 0.0)

    def _spans(self, following: float) -> Iterator[tuple[Span, list[int]]]:
        """Those that began before the next attempt; all that are left, where lines have no time."""
        times = self.steps.columns["time"]
        while self.done < len(self.spans) and not times[self.spans[self.done].first] >= following:
            self.done += 1
            yield self.spans[self.done - 1], self.kept[self.done - 1]

    def _span(self, span: Span, kept: Sequence[int], cause: str) -> None:
        columns = self.steps.columns
        for index, count in zip(range(span.first, span.end), kept, strict=True):
            train, save, evaluation = self._line(span, index)
            each = steps_of_line(self.steps, span, index)
            useful = train * count / each if each else 0.0
            self._spend(USEFUL, useful)
            self._spend("repeated", train - useful)
            self._spend("checkpoint", save)
            self._spend("evaluation", evaluation)
        began = columns["time"][span.first] - sum(self._line(span, span.first))
        if not math.isnan(began):
            self._spend(cause, self.held.between(self.cursor, began))
            self.cursor = columns["time"][span.end - 1]

    def _line(self, span: Span, index: int) -> tuple[float, float, float]:
        """Seconds of training, saves and evaluations of a line."""
        values = (self.steps.columns[name][index] for name in ("step_time_s", "save_s", "evaluation_s"))
        time, save, evaluation = (0.0 if math.isnan(value) else value for value in values)
        return time * steps_of_line(self.steps, span, index), save, evaluation

    def _tail(self, attempt: Attempt, following: float) -> None:
        end = attempt.ended if attempt.ended is not None else self._unrecorded(following)
        rest = end - self.cursor
        for moment, save, evaluation in self.events.closing:
            if self.cursor <= moment <= end:
                self._spend("checkpoint", save)
                self._spend("evaluation", evaluation)
                rest -= save + evaluation
        if not (self.held.is_running and following == math.inf):  # the step in hand is neither lost nor done
            self._spend("end" if attempt.is_good else "failure", rest)
        self.cursor = max(end, self.cursor)

    def _unrecorded(self, following: float) -> float:
        """Of an attempt that never said how it ended: when its job was put back, or the next one began."""
        ends = [moment for moment in self.events.requeued if self.cursor <= moment <= following]
        return min([*ends, following, self.held.end])
