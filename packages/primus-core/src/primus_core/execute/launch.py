"""One launch: what each layer of a plan needs to carry it out, the innermost one and those around it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from primus_core.contracts.observer import Observer, Observers, RunEnd
from primus_core.execute.observers import around_layer
from primus_core.journal.events import FILE, Events
from primus_core.journal.record import FirstFailure
from primus_core.output.console import append, say
from primus_core.plan.plan import Plan
from primus_core.plan.secret_values import values_in
from primus_core.runs.record_writer import RecordWriter
from primus_core.runs.rundir import short
from primus_machine.errors import PrimusError
from primus_machine.facts import Facts
from primus_machine.files.atomic import link_atomically
from primus_machine.own_process.signals import Signals
from primus_machine.secrets.masks import Mask
from primus_machine.secrets.redaction import redact
from primus_machine.supervision.program import Watch
from primus_machine.text import printable

if TYPE_CHECKING:
    from primus_core.hooks.script_output import ScriptOutput

__all__ = ["Launch", "Replan"]

Replan = Callable[["ScriptOutput"], Plan]
"""Plans the same run again, with what scripts have printed."""


class Launch:
    """A plan that is carried out on this machine: its directory, record, events, secrets and console."""

    def __init__(self, plan: Plan, facts: Facts, signals: Signals, *, debug: bool) -> None:
        self.facts, self.signals, self.debug = facts, signals, debug
        self.directory = plan.place.directory
        self.mask = Mask(())
        self.record = RecordWriter(plan, facts)
        self.take(plan)
        self.events = Events(
            f"{self.directory}/{FILE}",
            run=plan.place.run_id,
            node=plan.distributed.node_rank,
            rank=None,
            host=facts.hostname,
        )
        self.watch_by(around_layer)

    def watch_by(self, observers: Callable[[Launch], Iterable[Observer]]) -> None:
        """Have these observers from now on."""
        self.observers = Observers(observers(self))
        self.tell = self.observers.tell

    def take(self, plan: Plan) -> None:
        """Carry out this plan from now on."""
        self.plan = self.record.plan = plan
        self.environ = plan.environ(self.facts.host.environ)
        self.mask.add(values_in(plan, self.environ))

    @property
    def log(self) -> str:
        """What the programs of this layer print, but no rank: of each node that joined the run a file of its own."""
        name = self.plan.runtime if self.plan.inner else "launch"
        return f"{self.directory}/{self.record.part}logs/{name}.log"

    @property
    def seconds(self) -> float:
        """Since its beginning."""
        return time.time() - self.record.started

    @property
    def needs_explaining(self) -> bool:
        """Whether the run has failed, or its scheduler has ended it, as at a time limit."""
        return self.record.status == "failed" or self.record.ended_by_scheduler

    def watch(self, **own: Any) -> Watch:
        """How to stay with a process of this layer."""
        return Watch(
            log_dir=f"{self.directory}/logs",
            launch_log=self.log,
            mask=self.mask,
            signals=self.signals,
            grace_s=self.plan.grace_period_s,
            **{"poll": self.record.look, **own},
        )

    def greet(self, *lines: str) -> None:
        """Point the experiment's link at this run, and say what begins."""
        place = self.plan.place
        if place.link and not place.joined and not link_atomically(os.path.basename(self.directory), place.link):
            self.note(f"not updated: {place.link} is not a symlink of yours")
        for line in lines:
            self.say(f"primus: {line}\n")
        for note in self.plan.notes:  # nodes started by hand each have a console
            (self.say_once if place.joined else self.say)(f"primus: note: {note}\n")

    @property
    def name(self) -> str:
        """The run, as a person in the current folder names it."""
        return short(self.directory)

    def masked(self, text: str) -> str:
        """The same without secrets."""
        return redact(text, self.mask.secrets)

    def refused(self, error: PrimusError) -> PrimusError:
        """Record that the run ended with an error of Primus; the error without secrets."""
        shown = error.retold(self.masked)  # it may quote what a script printed
        self.failed(shown.what, error.exit_code)
        return shown

    def failed(self, why: str, exit_code: int) -> None:
        """Record that the run could not be carried out, unless its end is recorded."""
        if not self.record.status:
            self.tell(lambda one: one.refused(RunEnd("failed", exit_code, failure=FirstFailure(what=why))))

    def note(self, text: str) -> None:
        """Say something that a person should know."""
        self.say(f"primus: note: {text}\n")

    def say_once(self, text: str) -> None:
        """What all nodes would say, node 0 does."""
        if not self.plan.distributed.node_rank:
            self.say(text)

    def say(self, text: str) -> None:
        """Show `text` on the console."""
        text = printable(text, "\n\t")  # for whoever shows the log
        say(text)
        if self.plan.log_file:
            append(self.plan.log_file, text)
