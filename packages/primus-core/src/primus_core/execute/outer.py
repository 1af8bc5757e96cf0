"""Carries out the plan of an outer layer: the run directory is made here, and Primus inside joins it."""

from __future__ import annotations

import glob
import json
import os
import shlex
import signal
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from primus_core.config import submission
from primus_core.contracts import schedulers
from primus_core.errors import MachineError, RequestError
from primus_core.execute import requirements
from primus_core.execute.attendance import held
from primus_core.execute.job_step import JobStep, told_by
from primus_core.files.atomic import PRIVATE, PRIVATE_FOLDER, link_atomically, write_atomically
from primus_core.journal.events import FILE, Events
from primus_core.machine.facts import Facts
from primus_core.plan.plan import Plan, PlannedFile, Step
from primus_core.plan.secret_values import values_in
from primus_core.process.console import say
from primus_core.process.failure import last_words
from primus_core.process.streams import Mask
from primus_core.process.supervise import Ended, Signals, Watch, supervise
from primus_core.runs import snapshot
from primus_core.runs.record import Record, unwritable
from primus_core.runs.rundir import COMPLETED, short
from primus_core.runs.saved import metadata
from primus_core.secrets.redaction import redact

__all__ = ["execute_outer"]

_SWALLOWED = "what was asked for never began"
_OF_NODES = ("gpu_model", "world_size", "first_failure", "job_id", "step_id", "continues")
"""What only the nodes know, or know for sure."""
_DIFFERS = "plan_differs"
_HEARD_LINES = 200


def execute_outer(plan: Plan, facts: Facts, *, debug: bool = False) -> int:  # the inner layer has it
    """Run `plan` to its end; the exit code, which is that of the layer inside.

    Raises:
        MachineError: the engine is not here, or could not start what was asked.
        RunDirectoryTaken: another run made the directory since it was planned.
    """
    requirements.check(plan.requires, plan.environ(facts.host.environ))
    signals = Signals()
    try:
        return _Outer(plan, facts, signals).run()
    finally:
        signals.restore()


class _Outer:
    def __init__(self, plan: Plan, facts: Facts, signals: Signals) -> None:
        self.plan, self.facts, self.signals = plan, facts, signals
        self.directory = plan.place.directory
        self.environ = plan.environ(facts.host.environ)
        self.mask = Mask(values_in(plan, self.environ))
        self.record = Record(plan, facts)
        submission = next((step for step in plan.steps if step.kind == "submit"), None)
        self.main = submission or plan.steps[-1]
        self.submits = submission is not None
        self.scheduler = schedulers.find(self.main.scheduler.name) if self.main.scheduler else None
        self.job: dict[str, str] = {}
        self.left = False
        """Whether the scheduler has the run."""
        self.heard: deque[str] = deque(maxlen=_HEARD_LINES)
        self.events = Events(
            f"{self.directory}/{FILE}",
            run=plan.place.run_id,
            node=plan.distributed.node_rank,
            rank=None,
            host=facts.hostname,
        )
        self.job_step = JobStep(plan, self.record, self.events, self.environ, log=self._log, watch=self._watch)

    def run(self) -> int:
        self.record.make()
        try:
            return self._run()
        finally:
            self.record.release()

    def _run(self) -> int:
        self._write_files()
        if not self.plan.place.joined:
            snapshot.write_code(self.plan, self.facts, self.mask.secrets)  # there may be no git inside
        if self.submits:
            self.record.kept = {"submitted": self.record.started}
        known = self._about_scheduler()
        self.record.kept |= known
        self.record.write(status="started")
        self._greet()
        self._look_at_submission()
        self.events.emit("layer_started", layer=self.plan.runtime, **known)
        ended = self._steps()
        self.events.emit("layer_ended", layer=self.plan.runtime, exit_code=ended.exit_code)
        if self.job_step.requeued:
            return ended.exit_code  # the run goes on when the job does
        return self._left_to_job(ended) if self.left else self._finish(ended)

    def _about_scheduler(self) -> dict[str, Any]:
        """Name, flavour and version of the scheduler: what it does where it differs is looked up by them."""
        if not self.scheduler:
            return {}
        return {"scheduler": {"name": self.scheduler.name, **self.scheduler.version(self.main.argv[0], self.environ)}}

    def _write_files(self) -> None:
        """The plan, and what it gives the run directory."""
        name = "submit" if self.submits else self.plan.runtime  # the job has a layer of this runtime, too
        shown = tuple(replace(file, text="") if file.source else file for file in self.plan.files)
        saved = replace(self.plan, files=shown).to_dict()  # a copy stands beside it
        own = PlannedFile(f"{self.record.part}layers/{name}.json", json.dumps(saved, indent=1))
        for file in self.plan.files:
            if redact(file.text, self.mask.secrets) != file.text:
                raise RequestError(f"{file.path} would hold the value of a secret", fix="pass its name: --env NAME")
        try:
            for file in (own, *self.plan.files):
                path = f"{self.directory}/{file.path}"
                os.makedirs(os.path.dirname(path), mode=PRIVATE_FOLDER, exist_ok=True)
                if file.is_link:
                    link_atomically(file.source, path)
                else:
                    write_atomically(path, file.text, mode=PRIVATE | (file.mode & 0o100))
        except OSError as error:
            raise unwritable(self.directory, error) from None

    def _steps(self) -> Ended:
        ended = Ended(0)
        for step in self.plan.steps:
            if step.kind == "submit":
                self.record.release()  # the job will own the run, and may begin at once
            if step.scheduler and step.kind != "submit":
                return self.job_step.run(step, step.scheduler)
            with held(step.lock):
                ended = supervise(step, self.environ, self._watch())
            if step.kind == "submit":
                ended = self._submission(step, ended)
            if ended.exit_code:
                break
        return ended

    def _submission(self, step: Step, ended: Ended) -> Ended:
        """What the submission came to, with the plan's other command where the program does not know the first."""
        refused = step.fallback_for and step.fallback_for.lstrip("-") in self._words()
        if ended.exit_code and not ended.signal and refused:
            say(f"primus: note: {step.argv[0]} does not know {step.fallback_for}: submitting without it\n")
            ended = supervise(replace(step, argv=step.fallback), self.environ, self._watch())
        number, cluster = self.scheduler.submitted(self.heard) if self.scheduler else ("", "")
        if number:
            self._submitted(number, cluster)
        elif not ended.exit_code:
            say(f"primus: note: {step.argv[0]} did not say the job's number: `primus stop` cannot end the job\n")
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
        say(f"primus: {self.plan.runtime}: submitted job {number}\n")

    def _is_ours(self) -> bool:
        """Whether the job has not begun yet."""
        known = metadata(self.directory)
        return (known.get("pid"), known.get("host")) == (os.getpid(), self.facts.host.hostname())

    def _left_to_job(self, ended: Ended) -> int:
        """Its record is the job's own, if the job ever began; who only watched and stops watching changes nothing."""
        if ended.signal:
            say(f"primus: the job goes on; `primus stop {short(self.directory)}` ends it\n")
        elif ended.exit_code and self._is_ours():
            self.record.end("failed", ended.exit_code, **self.job)
        return ended.exit_code

    def _greet(self) -> None:
        place = self.plan.place
        if place.link and not place.joined:
            link_atomically(os.path.basename(self.directory), place.link)
        said = f"primus: {self.plan.runtime}: {self.main.argv[0]}\n"
        say(said if place.joined else f"primus: run {short(self.directory)}\n{said}")
        for note in self.plan.notes if not self.plan.distributed.node_rank else ():
            say(f"primus: note: {note}\n")

    def _look_at_submission(self) -> None:
        """Say which files have changed since the job was submitted; it runs with their copies.

        Raises:
            RequestError: one that is not copied has changed.
            MachineError: a copy has.
        """
        submitted = submission.of(self.facts.host.environ)
        if not submitted or self.plan.place.outer:
            return
        try:
            changed = submitted.changed()
        except (RequestError, MachineError) as error:
            self.record.end("failed", error.exit_code, first_failure={"rank": -1, "what": error.what})
            raise
        for path, what in changed.items():
            say(f"primus: note: {path} was {what} after the run was submitted; the job uses it as it was\n")
        if changed:
            self.record.kept["files_changed"] = changed
            self.record.note()

    def _watch(self) -> Watch:
        return Watch(
            log_dir=f"{self.directory}/logs",
            launch_log=self._log,
            mask=self.mask,
            signals=self.signals,
            grace_s=self.plan.grace_period_s,
            pass_through=True,
            on_signal=self._signalled,
            on_line=self._heard,
            poll=self.record.look,
        )

    def _signalled(self, number: int) -> None:
        """A layer on a node says at once that it was told to end: it may not live to say how it did."""
        if self.plan.place.outer:
            self.record.note(signal=signal.Signals(number).name)

    def _heard(self, line: bytes) -> None:
        self.heard.append(line.decode("utf-8", "replace"))

    def _finish(self, ended: Ended) -> int:
        code, verdict = ended.exit_code, self.job_step.verdict
        inside = self._inside()
        first = inside[0] if inside else {}
        known = {name: first[name] for name in _OF_NODES if name in first}
        known |= next(({_DIFFERS: said[_DIFFERS]} for said in inside if _DIFFERS in said), {})  # node 0 says it
        if asked := _asked(inside):
            if (first.get("ended") or 0) >= (asked.get("ended") or 0):
                known.pop("first_failure", None)  # it follows from the stop
            self.record.end(asked["status"], asked["exit_code"], **known, reason=asked.get("reason"))
            return ended.exit_code if self.plan.place.outer else int(asked["exit_code"])  # further out, others must end
        told = ended.signal or verdict.by_others or (not inside and self._is_withdrawn())
        status = "interrupted" if told and code else "failed" if code else COMPLETED
        if status == "failed" and isinstance(failed := first.get("exit_code"), int) and failed:
            code = failed  # where one node failed, the scheduler ends the others, and reports those
        if code and verdict.what:
            code = verdict.exit_code or ended.exit_code
            known["first_failure"] = verdict.to_dict() if verdict.what != told_by(ended.signal) else None
        # Where both see the lock, they see one run directory.
        swallowed = bool(status == COMPLETED and self.main.lock and not inside)
        if not swallowed and (status != "failed" or inside or verdict.what):
            self.record.end(status, code, **known)
            return code
        return self._not_begun(ended, swallowed=swallowed)

    def _is_withdrawn(self) -> bool:
        """Whether the job was cancelled before it began."""
        return bool(self.scheduler and self.scheduler.printed(self._words()).is_withdrawn)

    def _not_begun(self, ended: Ended, *, swallowed: bool) -> int:
        """The step failed, or did nothing, and nothing inside has said anything."""
        code = ended.exit_code
        refused = bool(ended.not_started) or swallowed or self.submits or code in self.main.refusals
        said = _SWALLOWED if swallowed else last_words(self._log)
        what = ended.not_started or said or f"ended with exit code {code} before it began the task"
        code = 3 if refused else code
        self.record.end("failed", code, first_failure={"rank": -1, "what": f"{self.plan.runtime}: {what}"})
        if refused:
            raise self._swallowed() if swallowed else self._refused(ended)
        return code

    def _inside(self) -> list[dict[str, Any]]:
        """What the nodes inside say: first the one that failed first."""
        node = str(self.plan.distributed.node_rank) if self.plan.place.outer else "*"
        paths = sorted(glob.glob(f"{glob.escape(self.directory)}/nodes/{node}"))
        found = [said for said in map(metadata, paths) if said and said.get("runtime") != self.plan.runtime]
        return sorted(found, key=lambda said: (said.get("status") != "failed", said.get("ended") or float("inf")))

    def _refused(self, ended: Ended) -> MachineError:
        """What the engine could not do; its own words are on the console already."""
        program = self.main.argv[0]
        return MachineError(
            f"{self.plan.runtime}: {program} could not start what was asked (exit code {ended.exit_code})",
            why=ended.not_started or f"{program} says so above, and in {short(self._log)}",
            fix=f"see the whole command: {self._typed_with('--dry-run')}",
        )

    def _swallowed(self) -> MachineError:
        return MachineError(
            f"{self.plan.runtime}: {self.main.argv[0]} ended well, and {_SWALLOWED}",
            why="something else ran in its place: the image's entrypoint, most likely",
            fix=f"run it without: {self._typed_with('--entrypoint', '')}",
        )

    def _typed_with(self, *words: str) -> str:
        """The command of this layer, with further options of it."""
        typed = [*self.plan.command]
        at = typed.index(self.plan.runtime) + 1 if self.plan.runtime in typed else len(typed)
        return shlex.join([*typed[:at], *words, *typed[at:]])

    @property
    def _log(self) -> str:
        return f"{self.directory}/{self.record.part}logs/{self.plan.runtime}.log"

    def _words(self) -> str:
        try:
            with open(self._log, encoding="utf-8", errors="replace") as file:
                return file.read()
        except OSError:
            return ""


def _asked(inside: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The node whose hook ended the run; or one of nodes whose scripts all had nothing to launch."""
    if stopped := next((said for said in inside if said.get("status") == "stopped"), None):
        return stopped
    skipped = [said for said in inside if said.get("status") == "skipped"]
    return skipped[0] if skipped and len(skipped) == len(inside) else None
