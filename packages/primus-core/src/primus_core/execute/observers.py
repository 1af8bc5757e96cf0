"""The observers of a launch: what is recorded of it, what may end it, and the Python hooks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from primus_core import variables
from primus_core.contracts.observer import Observer, Ranks, RunEnd
from primus_core.journal.events import SIGNAL, Events
from primus_core.plan.plan import Plan, Step
from primus_core.runs.record_writer import RecordWriter

if TYPE_CHECKING:
    from primus_core.execute.launch import Launch

__all__ = ["around_layer", "of_ranks"]


def of_ranks(launch: Launch) -> Iterator[Observer]:
    """Yield those of the innermost layer."""
    yield from _recording(launch)
    attended = launch.facts.host.environ.get(variables.ATTENDED, "")
    if attended or launch.plan.place.outer:  # what is around may be gone, and this part of the run with it
        from primus_core.multinode.watches import LockWatch, RecordWatch

        yield LockWatch(attended)
        yield RecordWatch(launch.record)
    if launch.plan.hook_plugins:
        from primus_core.hooks.lifecycle import Lifecycle

        yield Lifecycle(launch.facts.hostname, launch.mask, launch.say, lambda: _count_signals(launch))


def around_layer(launch: Launch) -> Iterator[Observer]:
    """Yield those of a layer around another one, which reports what happens inside."""
    yield from _recording(launch)


def _recording(launch: Launch) -> Iterator[Observer]:
    yield RecordObserver(launch.record, launch.note)
    yield EventObserver(launch.events)


def _count_signals(launch: Launch) -> int:
    """Count the signals that came. Asked again and again while a hook is waited for: the owner is alive then, too."""
    launch.record.look()
    return launch.signals.count


class RecordObserver(Observer):
    """Keeps the run's record, and the lease that shows that its owner is alive."""

    def __init__(self, record: RecordWriter, note: Callable[[str], None]) -> None:
        self.record, self.note = record, note

    def learned(self, **fields: object) -> None:
        self.record.keep(**fields)
        self.record.note()

    def look(self, ranks: Callable[[], Ranks]) -> None:
        self.record.look()

    def signalled(self, name: str) -> None:
        self.record.note(signal=name)

    def refused(self, end: RunEnd) -> None:
        self.record.end(end.status, end.exit_code, first_failure=end.failure)

    def ended(self, end: RunEnd) -> None:
        if note := self.record.end(end.status, end.exit_code, first_failure=end.failure, reason=end.reason):
            self.note(note)


class EventObserver(Observer):
    """Writes a line into `logs/events.jsonl` at each moment."""

    def __init__(self, events: Events) -> None:
        self.events = events

    def run_started(self, plan: Plan) -> None:
        self.events.emit("run_started", task=plan.task, world_size=plan.distributed.world_size)

    def step_started(self, step: Step) -> None:
        self.events.emit("step_started", name=step.name)

    def step_ended(self, step: Step, exit_code: int) -> None:
        self.events.emit("step_ended", name=step.name, exit_code=exit_code)

    def signalled(self, name: str) -> None:
        self.events.emit(SIGNAL, level="warning", signal=name)

    def refused(self, end: RunEnd) -> None:
        self.events.emit("run_ended", status=end.status, exit_code=end.exit_code, first_failure=None)

    def ended(self, end: RunEnd) -> None:
        failure = end.failure.to_dict() if end.failure else None
        known = {"reason": end.reason} if end.reason else {"first_failure": failure}
        self.events.emit("run_ended", status=end.status, exit_code=end.exit_code, **known)
