"""When a worker is started again after a failure: all the rules, for the ranks of a node and for the nodes of a job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from primus_core.journal.record import Attempt
from primus_machine.supervision.program import Ended

__all__ = ["FailedRank", "RetryPolicy", "count_without_progress"]


class FailedRank(NamedTuple):
    """What decides, of the rank that failed first. `exit_code` 0: a script or a whole node failed, not a rank."""

    exit_code: int
    is_refusal: bool
    """It refused what was asked of it."""


class RetryPolicy(NamedTuple):
    """How often a run may fail."""

    most: int
    """So many attempts in a row may bring no new step; 0: nothing is started again."""
    spares: int = 0
    """So many nodes may be lost; 0: no node is left out."""

    def wants_no_other(self, ended: Ended) -> bool:
        """Whether nobody asks for another attempt: the last one ended well, was ended, or could not be started."""
        return bool(not self.most or not ended.exit_code or ended.signal or ended.stopped or ended.not_started)

    def find_obstacle(
        self, attempts: Sequence[Attempt], failed: FailedRank | None = None, *, lost: Sequence[str] = ()
    ) -> str:
        """Return why no other attempt is made; empty: it may bring new steps. `lost`: nodes that are not used again."""
        if failed and failed.is_refusal:
            return "the request is refused, and would be again"
        if self.spares and len(lost) > self.spares:
            return f"no spare node is left for {', '.join(lost)}"
        count = count_without_progress(attempts)
        restarts = "restart" if count == 1 else f"{count} restarts in a row"
        return f"{restarts} brought no new step" if self.most and count >= self.most else ""


def count_without_progress(attempts: Sequence[Attempt]) -> int:
    """Return how many of the latest attempts in a row brought no new step. One that somebody ended says nothing."""
    reached, count = -1, 0
    for number, attempt in enumerate(attempts):
        last = reached if attempt.last_step is None else attempt.last_step
        if last > reached or not number:
            count = 0
        elif not attempt.ended_by_others:
            count += 1
        reached = max(reached, last)
    return count
