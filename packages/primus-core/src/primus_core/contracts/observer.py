"""What goes on beside the steps of a launch, by one protocol: the executor knows no observer by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from primus_core.journal.record import FirstFailure
from primus_core.plan.plan import Plan, Step

__all__ = ["Observer", "Observers", "Ranks", "RunEnd", "Stop"]

Ranks = Mapping[int, int]
"""The processes of this node's ranks that have started, by global rank."""


class Stop(NamedTuple):
    """An observer, such as a hook, asks for the end of the run."""

    reason: str
    exit_code: int


class RunEnd(NamedTuple):
    """How a run ended on this node."""

    status: str
    """`completed`, `failed`, `interrupted`, `skipped` by a script, or `stopped` by a hook."""
    exit_code: int
    seconds: float = 0.0
    failure: FirstFailure | None = None
    reason: str = ""
    """Why a script or a hook ended it; or why a run that was told to end has no checkpoint of its last step."""
    traceback: str = ""
    host: str = ""
    """Where what failed first has failed."""


class Observer:
    """One of them. It does nothing at the moments that it does not care about."""

    stop: Stop | None = None
    """Set: the ranks are to be ended gently. Asked for several times a second."""

    def run_started(self, plan: Plan) -> None:
        """Take in that the plan is carried out from now on."""

    def learned(self, **fields: Any) -> None:
        """Take in fields of the run's record that were found out while it runs."""

    def before_ranks(self, plan: Plan, environ: Mapping[str, str]) -> Stop | None:
        """Prepare for the ranks, whose environment is known now; a `Stop`: none shall start."""
        return None

    def step_started(self, step: Step) -> None:
        """Take in that a step begins."""

    def step_ended(self, step: Step, exit_code: int) -> None:
        """Take in that a step has ended."""

    def look(self, ranks: Callable[[], Ranks]) -> None:
        """Do what is due. Called several times a second while a step runs."""

    def signalled(self, name: str) -> None:
        """Take in that the run was told to end, by the signal of that name."""

    def may_end_hung(self, silent_s: float, ranks: Ranks) -> bool:
        """Return whether ranks that hang may be ended now. Called again and again until it says so."""
        return True

    def refused(self, end: RunEnd) -> None:
        """Take in that the launch could not be carried out."""

    def ended(self, end: RunEnd) -> None:
        """Take in how the run ended. Nothing of it runs any more."""

    def close(self) -> None:
        """End what the observer itself has started."""


class Observers:
    """All observers of a launch, in their order."""

    def __init__(self, observers: Iterable[Observer]) -> None:
        self.all = tuple(observers)

    @property
    def stop(self) -> Stop | None:
        """Return what the first one asks for that wants the end of the ranks."""
        return next((one.stop for one in self.all if one.stop), None)

    def before_ranks(self, plan: Plan, environ: Mapping[str, str]) -> Stop | None:
        """Let each prepare, until one wants no launch."""
        return next(filter(None, (one.before_ranks(plan, environ) for one in self.all)), None)

    def may_end_hung(self, silent_s: float, ranks: Ranks) -> bool:
        """Return whether none of them still looks at ranks that hang."""
        return all(one.may_end_hung(silent_s, ranks) for one in self.all)

    def tell(self, moment: Callable[[Observer], object]) -> None:
        """Tell each of them: `observers.tell(lambda one: one.ended(end))`."""
        for one in self.all:
            moment(one)
