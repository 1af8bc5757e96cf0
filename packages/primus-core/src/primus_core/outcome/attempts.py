"""The starts of a run's worker. Each is recorded; what counts for one more is a step that none had reached before."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from primus_core.journal import summary
from primus_core.journal.events import Events
from primus_core.journal.record import Attempt
from primus_core.outcome import failure
from primus_core.plan.plan import METRICS
from primus_core.runs.record_writer import RecordWriter

__all__ = ["REFUSED", "Attempts", "without_progress"]

REFUSED = "the request is refused, and would be again"

_NO_RECORD = "its end was not recorded: its first node failed, or the scheduler removed that node"


def without_progress(attempts: Sequence[Attempt]) -> int:
    """How many of the latest `attempts` in a row brought no new step. One that somebody ended says nothing."""
    reached, count = -1, 0
    for number, attempt in enumerate(attempts):
        last = -1 if attempt.last_step is None else attempt.last_step
        if last > reached or not number:
            count = 0
        elif not attempt.ended_by_others:
            count += 1
        reached = max(reached, last)
    return count


class Attempts:
    """Those of one run, earlier jobs of it included. `most`: so many in a row may bring no new step."""

    def __init__(self, record: RecordWriter, events: Events, most: int) -> None:
        self.record, self.events, self.most = record, events, most
        self._lines_before = 0
        if self.made and self.made[-1].is_open:
            self._close(last_step=self._last_step(), what=_NO_RECORD, ended_by_others=True)

    @property
    def made(self) -> list[Attempt]:
        """What is known of each, the latest last."""
        return self.record.attempts

    @property
    def gives_up(self) -> str:
        """Why there shall be no further one; empty: it may be."""
        count = without_progress(self.made)
        enough = self.most and count >= self.most
        restarts = "restart" if count == 1 else f"{count} restarts in a row"
        return f"{restarts} brought no new step" if enough else ""

    def begin(self) -> None:
        """The next one starts: what the ranks of the last one reported is kept apart."""
        if self.made:
            failure.set_aside(self.record.directory, len(self.made))
        self._lines_before = len(self._rows())
        self.made.append(Attempt(time.time()))

    def end(self, exit_code: int, what: str, *, by_others: bool = False, lost_nodes: Sequence[str] = ()) -> None:
        """It ended so."""
        step = None if exit_code else summary.ended_at(self.record.directory)
        self._close(
            ended=time.time(),
            exit_code=exit_code,
            last_step=step or self._last_step(),
            what=what,
            lost_nodes=tuple(lost_nodes),
            ended_by_others=by_others,
        )

    def _close(self, **known: Any) -> None:
        self.made[-1] = replace(self.made[-1], **known)

    def announce(self) -> str:
        """Tell the events that the next one comes, and say it in words."""
        number, last = len(self.made), self.made[-1]
        known = {"exit_code": last.exit_code, "last_step": last.last_step, "what": last.what}
        self.events.emit("restart", level="warning", attempt=number + 1, **known)
        at = f" at step {last.last_step}" if last.last_step is not None else ""
        return f"attempt {number} ended with exit code {last.exit_code}{at}: starting again"

    def _last_step(self) -> int | None:
        """The highest step that the latest of them has reached; of one of an earlier job, that any has reached.

        By its lines, not by their times: the rank that writes them may have another clock.
        """
        return max((row["step"] for row in self._rows()[self._lines_before :]), default=None)

    def _rows(self) -> list[dict[str, Any]]:
        return summary.read(f"{self.record.directory}/{METRICS}")
