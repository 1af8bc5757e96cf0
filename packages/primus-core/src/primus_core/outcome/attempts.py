"""The starts of a run's worker, as they are recorded."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence
from typing import Any

from primus_core.journal import summary
from primus_core.journal.events import Events
from primus_core.journal.record import Attempt
from primus_core.plan.plan import METRICS
from primus_core.plan.programs import FAILURES
from primus_core.runs.record_writer import RecordWriter

__all__ = ["Attempts", "set_aside"]

_NO_RECORD = "its end was not recorded: its first node failed, or the scheduler removed that node"


class Attempts:
    """Those of one run, earlier jobs of it included."""

    def __init__(self, record: RecordWriter, events: Events) -> None:
        self.record, self.events = record, events
        self._lines_before = 0
        if self.made and self.made[-1].is_open:
            self.record.close_attempt(last_step=self._last_step(), what=_NO_RECORD, ended_by_others=True)

    @property
    def made(self) -> list[Attempt]:
        """What is known of each, the latest last."""
        return self.record.attempts

    def begin(self) -> None:
        """The next one starts: what the ranks of the last one reported is kept apart."""
        if self.made:
            set_aside(self.record.directory, len(self.made))
        self._lines_before = len(self._rows())
        self.record.begin_attempt()

    def end(self, exit_code: int, what: str, *, by_others: bool = False, lost_nodes: Sequence[str] = ()) -> None:
        """It ended so."""
        step = None if exit_code else summary.ended_at(self.record.directory)
        self.record.close_attempt(
            ended=time.time(),
            exit_code=exit_code,
            last_step=step or self._last_step(),
            what=what,
            lost_nodes=tuple(lost_nodes),
            ended_by_others=by_others,
        )

    def announce(self) -> str:
        """Tell the events that the next one comes, and say it in words."""
        number, last = len(self.made), self.made[-1]
        known = {"exit_code": last.exit_code, "last_step": last.last_step, "what": last.what}
        self.events.emit("restart", level="warning", attempt=number + 1, **known)
        at = f" at step {last.last_step}" if last.last_step is not None else ""
        return f"attempt {number} ended with exit code {last.exit_code}{at}: starting again"

    def _last_step(self) -> int | None:
        """The highest step with a finite loss of the latest of them; of one of an earlier job, of any of them.

        By its lines, not by their times: the rank that writes them may have another clock.
        """
        return max((row["step"] for row in self._rows()[self._lines_before :] if row["loss"] is not None), default=None)

    def _rows(self) -> list[dict[str, Any]]:
        return summary.read(f"{self.record.directory}/{METRICS}")


def set_aside(run_dir: str, attempt: int) -> None:
    """Keep the records of an attempt apart: those of the next one are the news.

    Nodes that were started by hand in one run directory all come here, and each counts its own attempts.
    """
    folder = f"{run_dir}/{FAILURES}"
    if os.path.isdir(folder):
        while os.path.isdir(f"{folder}_{attempt}") and os.listdir(f"{folder}_{attempt}"):
            attempt += 1
        with contextlib.suppress(OSError):  # another node was quicker
            os.rename(folder, f"{folder}_{attempt}")
        with contextlib.suppress(OSError):  # a full disk: each rank says so
            os.makedirs(folder, exist_ok=True)
