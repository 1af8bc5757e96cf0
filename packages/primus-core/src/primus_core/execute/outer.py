"""A layer around another one: its last step runs Primus again, on other machines or in a container, or submits it."""

from __future__ import annotations

import json
import os
import signal
from collections import deque
from dataclasses import asdict
from typing import Any

from primus_core.config import submission
from primus_core.contracts import schedulers
from primus_core.contracts.scheduler import Scheduler
from primus_core.execute.launch import Launch
from primus_core.journal import record
from primus_core.journal.record import SchedulerUsed
from primus_core.multinode import added_flags
from primus_core.multinode.job_step import JobStep
from primus_core.multinode.layer_end import LayerEnd
from primus_core.multinode.watches import held
from primus_core.plan.plan import PlannedFile, Step
from primus_core.runs import snapshot
from primus_core.runs.rundir import as_line
from primus_machine.errors import RequestError
from primus_machine.files.atomic import PRIVATE, PRIVATE_FOLDER, link_atomically, write_atomically
from primus_machine.files.capped_log import output_of
from primus_machine.secrets.redaction import redact
from primus_machine.supervision.program import Ended, Watch
from primus_machine.supervision.supervise import supervise

__all__ = ["OuterLayer"]

_KEPT_LINES = 200


class OuterLayer:
    """The process that runs the layer inside, or hands it to a scheduler."""

    def __init__(self, launch: Launch) -> None:
        self.launch, self.plan, self.record, self.events = launch, launch.plan, launch.record, launch.events
        submission = next((step for step in self.plan.steps if step.kind == "submit"), None)
        self.main = submission or self.plan.steps[-1]
        self.submits = submission is not None
        self.scheduler = schedulers.find(self.main.scheduler.name) if self.main.scheduler else None
        self.job: dict[str, str] = {}
        self.left = False
        """Whether the scheduler has the run."""
        self.lines: deque[str] = deque(maxlen=_KEPT_LINES)
        """The latest of what the program printed."""
        self.job_step = JobStep(self.plan, self.record, self.events, launch.environ, log=launch.log, watch=self._watch)

    def save(self) -> None:
        """The plan, and what it gives the run directory; the code, since there may be no git inside."""
        name = "submit" if self.submits else self.plan.runtime  # the job has a layer of this runtime, too
        shown = tuple(file._replace(text="") if file.source else file for file in self.plan.files)
        saved = self.plan._replace(files=shown).to_dict()  # a copy stands beside it
        own = PlannedFile(f"{self.record.part}layers/{name}.json", json.dumps(saved, indent=1))
        for file in self.plan.files:
            if redact(file.text, self.launch.mask.secrets) != file.text:
                raise RequestError(f"{file.path} would hold the value of a secret", fix="pass its name: --env NAME")
        for file in (own, *self.plan.files):
            self._write(file)
        if not self.plan.place.joined:
            snapshot.write_code(self.plan, self.launch.facts, self.launch.mask.secrets)
        if self.submits:
            self.record.keep(submitted=self.record.started)
        if self.scheduler:
            self.record.keep(scheduler=self._used(self.scheduler))

    def _write(self, file: PlannedFile) -> None:
        path = f"{self.launch.directory}/{file.path}"
        os.makedirs(os.path.dirname(path), mode=PRIVATE_FOLDER, exist_ok=True)
        if file.is_link:
            link_atomically(file.source, path)
        else:
            write_atomically(path, file.text, mode=PRIVATE | (file.mode & 0o100))

    def _used(self, scheduler: Scheduler) -> SchedulerUsed:
        """Name, flavour and version of the scheduler: what it does where it differs is looked up by them."""
        version = scheduler.version(self.main.argv[0], self.launch.environ)
        return SchedulerUsed(scheduler.name, version.get("flavour", ""), version.get("version", ""))

    def begin(self) -> None:
        """Greet, and name the files that have changed since the job was submitted; it runs with their copies.

        Raises:
            RequestError: one that is not copied has changed.
            MachineError: a copy has.
        """
        place, program = self.plan.place, f"{self.plan.runtime}: {self.main.argv[0]}"
        self.launch.greet(*([] if place.joined else [as_line(self.launch.directory)]), program)
        submitted = submission.of(self.launch.facts.host.environ)
        changed = submitted.changed() if submitted and not place.outer else {}
        for path, what in changed.items():
            self.launch.say(f"primus: note: {path} was {what} after the run was submitted; the job uses it as it was\n")
        if changed:
            self.launch.tell(lambda one: one.learned(files_changed=changed))

    def run(self) -> int:
        """Run the steps, of which the last runs what is inside, or submits it."""
        used = self.record.kept.get("scheduler")
        about: dict[str, Any] = {"scheduler": asdict(used)} if used else {}
        self.events.emit("layer_started", layer=self.plan.runtime, **about)
        ended = self._steps()
        self.events.emit("layer_ended", layer=self.plan.runtime, exit_code=ended.exit_code)
        if self.job_step.requeued:
            return ended.exit_code  # the run goes on when the job does
        if self.left:
            return self._left_to_job(ended)
        verdict = self.job_step.verdict
        return LayerEnd(
            self.record, self.main, self.launch.log, scheduler=self.scheduler, verdict=verdict, ended=ended
        ).code()

    def close(self) -> None:
        """Nothing runs beside the steps."""

    def _steps(self) -> Ended:
        ended = Ended(0)
        for step in self.plan.steps:
            if step.kind == "submit":
                self.record.release()  # the job will own the run, and may begin at once
            if step.scheduler and step.kind != "submit":
                return self.job_step.run(step, step.scheduler)
            with held(step.lock):
                if step.kind == "submit":
                    ended = self._submission(step)
                else:
                    ended = supervise(step, self.launch.environ, self._watch())
            if ended.exit_code:
                break
        return ended

    def _submission(self, step: Step) -> Ended:
        """What the submission came to, without flags of Primus that the program does not know."""
        ended = added_flags.started(
            step,
            lambda one: supervise(one, self.launch.environ, self._watch()),
            lambda: output_of(self.launch.log),
            self.launch.note,
        )
        number, cluster = self.scheduler.submitted(self.lines) if self.scheduler else ("", "")
        if number:
            self._submitted(number, cluster)
        elif not ended.exit_code:
            self.launch.note(f"{step.argv[0]} did not print the job's number: `primus stop` cannot stop the job")
            self.left = True
            if self._is_ours():
                self.record.note("submitted")
        return ended

    def _submitted(self, number: str, cluster: str) -> None:
        """The scheduler has the run; from its beginning on its metadata is the job's."""
        self.left = True
        self.job = {"job_id": number, **({"cluster": cluster} if cluster else {})}
        self.events.emit("submitted", **self.job)
        if self._is_ours():
            self.record.note("submitted", **self.job)
        self.launch.say(f"primus: {self.plan.runtime}: submitted job {number}\n")

    def _is_ours(self) -> bool:
        """Whether the job has not begun yet."""
        known = record.read(self.launch.directory)
        return (known.pid, known.host) == (os.getpid(), self.launch.facts.host.hostname())

    def _left_to_job(self, ended: Ended) -> int:
        """Its record is the job's own, if the job ever began; who only watched and stops watching changes nothing."""
        if ended.signal:
            self.launch.say(f"primus: the job keeps running; to stop it: primus stop {self.launch.name}\n")
        elif ended.exit_code and self._is_ours():
            self.record.end("failed", ended.exit_code, **self.job)
        return ended.exit_code

    def _watch(self) -> Watch:
        return self.launch.watch(
            pass_through=True,
            on_signal=self._signalled,
            on_line=lambda line: self.lines.append(line.decode("utf-8", "replace")),
        )

    def _signalled(self, number: int) -> None:
        """A layer on a node records at once that it was signalled: it may not live to record its end."""
        if self.plan.place.outer:
            self.record.note(signal=signal.Signals(number).name)
