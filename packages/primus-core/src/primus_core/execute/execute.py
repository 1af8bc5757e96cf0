"""Carries out a plan: makes the run directory, runs the steps, says how it ended. It decides nothing.

What hooks and patches say is for the planner to judge: it is asked again, and its answer is carried out.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from primus_core import variables
from primus_core.config import submission
from primus_core.environment.flag_lists import FLAG_LISTS, over
from primus_core.errors import MachineError, PrimusError
from primus_core.execute import closing, first_failure, requirements
from primus_core.execute.attempts import Attempts
from primus_core.execute.attendance import Attendance, Course
from primus_core.execute.script_lines import Listener
from primus_core.files import trust
from primus_core.files.atomic import link_atomically
from primus_core.hooks import scripts
from primus_core.hooks.data import Result, Stop
from primus_core.hooks.scripts import Spoken
from primus_core.journal import summary
from primus_core.journal.events import FILE, Events
from primus_core.machine.facts import Facts
from primus_core.plan.plan import BEFORE_RANKS, METRICS, Plan, Step
from primus_core.plan.secret_values import values_in
from primus_core.process import failure
from primus_core.process.console import append, say
from primus_core.process.streams import Mask
from primus_core.process.supervise import Ended, Signals, Watch, supervise
from primus_core.runs import snapshot
from primus_core.runs.record import Record, unwritable
from primus_core.runs.rundir import COMPLETED, short
from primus_core.secrets.redaction import redact

if TYPE_CHECKING:
    from primus_core.hooks.lifecycle import Lifecycle

__all__ = ["execute"]

_SHOWN = 5
"""So many differences from what was submitted are named on the console."""

Replan = Callable[[Spoken], Plan]


def execute(plan: Plan, facts: Facts, replan: Replan, *, debug: bool = False) -> int:
    """Run `plan` to its end; the exit code. `replan` gives the plan with what hooks and patches said.

    Raises:
        MachineError: something that the plan requires is missing, or a program cannot be started.
        RequestError: what a hook or patch said cannot be planned.
        RunDirectoryTaken: another run made the directory since it was planned.
    """
    requirements.check_plan(plan, facts.host.environ, installed=True)
    signals = Signals()
    try:
        return _Run(plan, facts, replan, signals, debug=debug).run()
    finally:
        signals.restore()


class _Run:
    def __init__(self, plan: Plan, facts: Facts, replan: Replan, signals: Signals, *, debug: bool) -> None:
        self.facts, self.replan, self.signals, self.debug = facts, replan, signals, debug
        self.directory = plan.place.directory
        self.mask = Mask(())
        self.dropped = 0
        self.skipped = ""
        """Why a script says that there is nothing to launch."""
        self.told_of_stop = False
        self.quiet_until = 0
        """Where in the launch log the step in hand began to speak, in bytes."""
        self.record = Record(plan, facts)
        self.hooks: Lifecycle | None = None
        self.attendance = Attendance(facts.host.environ.get(variables.ATTENDED, ""))
        self.course = Course(self.record)
        self._take(plan)
        self.events = Events(
            f"{self.directory}/{FILE}",
            run=plan.place.run_id,
            node=plan.distributed.node_rank,
            rank=None,
            host=facts.hostname,
        )

    def _take(self, plan: Plan) -> None:
        """Carry out this plan from now on."""
        self.plan = self.record.plan = plan
        self.environ = plan.environ(self.facts.host.environ)
        self.mask.add(values_in(plan, self.environ))

    def run(self) -> int:
        self.record.make()
        try:
            self._snapshot()
            self._greet()
            self._compare_with_submission()
            ended, step = self._scripts()
            if ended.exit_code:
                return self._finish(ended, step)
            if self.skipped:
                return self._skip(self.skipped)
            if stop := self._before_launch():
                return self._stopped(stop)
            ended, step = self._steps()
            if ended.stopped and self.hooks and self.hooks.stop and not ended.signal:
                return self._stopped(self.hooks.stop)
            return self._finish(ended, step)
        except PrimusError as error:
            told = error.retold(lambda text: redact(text, self.mask.secrets))  # it may quote what a script said
            self.record.end("failed", error.exit_code, first_failure={"rank": -1, "what": told.what})
            self.events.emit("run_ended", status="failed", exit_code=error.exit_code, first_failure=None)
            raise told from None
        finally:
            if self.hooks:
                self.hooks.close()
            self.record.release()

    def _before_launch(self) -> Stop | None:
        """Start the Python hooks, if there are any. Whether one of them wants no launch."""
        if not self.plan.hook_plugins:
            return None
        from primus_core.hooks.lifecycle import Lifecycle

        self.hooks = Lifecycle(
            self.plan,
            self.facts.hostname,
            {**self.environ, variables.IN_HOOK: "1"},
            mask=self.mask,
            say=self._say,
            interruptions=self._interruptions,
        )
        return self.hooks.before_launch()

    def _stopped(self, stop: Stop) -> int:
        """A hook has asked for the end; the ranks, if there were some, have ended."""
        reason = redact(stop.reason, self.mask.secrets)
        self._record_end("stopped", stop.exit_code, reason)
        self._say(f"primus: stopped by a hook: {reason}\n  run    {short(self.directory)}\n")
        self._tell("stopped", stop.exit_code, None)
        several = self.plan.place.outer and self.plan.distributed.nnodes > 1
        return stop.exit_code or int(bool(several))  # a scheduler ends the other nodes only where one fails

    def _skip(self, why: str) -> int:
        """A script says that there is nothing to launch."""
        why = redact(why, self.mask.secrets)
        self._record_end("skipped", 0, why)
        self._say(f"primus: not launched: {why}\n")
        return 0

    def _record_end(self, status: str, code: int, reason: str) -> None:
        if note := self.record.end(status, code, reason=reason):
            self._note(note)
        self.events.emit("run_ended", status=status, exit_code=code, reason=reason)

    def _wants_stop(self) -> bool:
        """Whether a hook asks for the end of the ranks."""
        if not (stop := self.hooks.stop if self.hooks else None):
            return False
        if not self.told_of_stop:
            self.told_of_stop = True
            reason = redact(stop.reason, self.mask.secrets)
            self._say(f"primus: stopping: {reason}; SIGKILL in {self.plan.grace_period_s:g} s\n")
        return True

    def _interruptions(self) -> int:
        """How many signals came. Asked again and again while a hook is waited for: the owner is alive then, too."""
        self.record.look()
        return self.signals.count

    def _tell(self, status: str, code: int, first: failure.Failure | None) -> None:
        """The Python hooks hear how it ended."""
        if self.hooks:
            rows = summary.read(f"{self.directory}/{METRICS}")
            last = (rows[-1]["step"], rows[-1]["loss"]) if rows else (None, None)
            self.hooks.ended(Result(status, code, time.time() - self.record.started, *last), first)

    def _snapshot(self) -> None:
        """All that a replay needs, before anything is started."""
        try:
            note = snapshot.write(self.plan, self.facts, self.environ, self.mask.secrets)
            self.record.write(status="started")
        except OSError as error:
            raise unwritable(self.directory, error) from None
        if note:
            self._note(note)

    def _greet(self) -> None:
        place = self.plan.place
        if place.link and not place.joined and not link_atomically(os.path.basename(self.directory), place.link):
            self._note(f"{place.link} is no link of yours, so it does not point at this run")
        self.events.emit("run_started", task=self.plan.task, world_size=self.plan.distributed.world_size)
        if not place.outer:  # that one has said it
            self._say(f"primus: run {short(self.directory)}\n")
        for note in self.plan.notes:
            self._say_once(f"primus: note: {note}\n")

    def _compare_with_submission(self) -> None:
        """Say what is planned otherwise here than it was planned where the run was submitted."""
        if self.plan.distributed.node_rank or not submission.of(self.facts.host.environ):
            return
        from primus_core.runs.submitting import differences

        if found := differences(self.plan, self.facts.host.environ):
            more = f"; {len(found) - _SHOWN} more in metadata.json" if len(found) > _SHOWN else ""
            self._note(f"planned differently than at submission: {', '.join(map(str, found[:_SHOWN]))}{more}")
            self.record.kept["plan_differs"] = [difference._asdict() for difference in found]
            self.record.note()

    def _scripts(self) -> tuple[Ended, Step | None]:
        """Hooks and patches, one after the other; the plan with what they said is the one that goes on."""
        spoken, known, speakers = Spoken(), self.mask.secrets, dict[str, tuple[str, ...]]()
        try:
            for step in self.plan.steps:
                if not step.script:
                    continue
                ended, said = self._script(step)
                if step.kind == "patch" and ended.exit_code == scripts.NOT_APPLICABLE and not ended.signal:
                    self._say(f"primus: {step.name}: not applicable here\n")
                    continue
                if ended.exit_code:
                    return ended, step
                if said.skip:
                    self.skipped = f"{said.skip} ({step.name})"
                    return Ended(0), None
                spoken, speakers[step.name] = spoken.and_then(said), said.words
                options = (v for v in self.plan.environment if v.origin.startswith("--env"))
                fixed = {v.name for v in options} - FLAG_LISTS
                self.environ = over(self.environ, (v for v in said.environment if v.name not in fixed))
            if spoken != Spoken():
                with scripts.naming(speakers):
                    self._take(self.replan(spoken))
            return Ended(0), None
        finally:
            if spoken != Spoken() or self.mask.secrets != known:  # a secret may stand in what was saved before it
                self._snapshot()

    def _script(self, step: Step) -> tuple[Ended, Spoken]:
        trust.of(self.facts.host.environ).require(step.script, "the script")  # planned a while ago: still the same?
        listener = Listener(step, self.mask, self.events, self._note)
        ended = self._step(step, listener)
        if ended.timed_out:
            self._say(f"primus: {step.name} took longer than {step.timeout_s:g} s and was cut off\n")
        if (ended.timed_out or ended.signal) and not ended.exit_code:  # it tidied up and said that all is well
            ended = replace(ended, exit_code=128 + (ended.signal or signal.SIGTERM))
        for command in ended.left:
            self._note(redact(f"{step.name} left '{command}' running; it was ended with it", self.mask.secrets))
        return ended, listener.said

    def _steps(self) -> tuple[Ended, Step | None]:
        ended, step = Ended(0), None
        for planned in self.plan.steps:
            if planned.script:
                continue
            ended, step = self._attempts(planned) if planned.ranks else (self._step(planned), planned)
            if ended.exit_code:
                break
        return ended, step

    def _attempts(self, worker: Step) -> tuple[Ended, Step]:
        """The worker, started again where that is wanted, an earlier start was not in vain, and the node is fit."""
        attempts = Attempts(self.record, self.events, self.plan.max_restarts)
        looks = [step for step in self.plan.steps if step.kind == "preflight"]
        steps = [worker]
        while True:
            attempts.begin()
            ended, step = self._in_turn(steps)
            first = self._first_failure(ended, step)
            code = first.exit_code if first and ended.exit_code else ended.exit_code
            attempts.end(code, first.what if first else first_failure.why_ended(self.plan, ended))
            over = ended.signal or ended.stopped or ended.not_started or not ended.exit_code
            if over or not self.plan.max_restarts or step is not worker:
                return ended, step
            if why := attempts.in_vain:
                self._note(f"not started again: {why}")
                return ended, step
            self._note(attempts.announce())
            steps = [*looks, worker]

    def _in_turn(self, steps: Sequence[Step]) -> tuple[Ended, Step]:
        """Until one of them fails."""
        *before, last = steps
        for step in before:
            if (ended := self._step(step)).exit_code:
                return ended, step
        return self._step(last), last

    def _step(self, step: Step, listen: Callable[[bytes], None] | None = None) -> Ended:
        self.events.emit("step_started", name=step.name)
        self.quiet_until = os.path.getsize(self.launch_log) if os.path.exists(self.launch_log) else 0
        self._say_once(f"primus: {step.name}{_ranks(step)}\n")
        environ = {**self.environ, variables.IN_HOOK: "1"} if step.script else self.environ
        ended = supervise(step, environ, self._watch(listen, ranks=bool(step.ranks)))
        self.dropped += ended.dropped
        self.events.emit("step_ended", name=step.name, exit_code=ended.exit_code)
        return ended

    def _watch(self, listen: Callable[[bytes], None] | None, *, ranks: bool) -> Watch:
        plan = self.plan
        return Watch(
            log_dir=f"{self.directory}/logs",
            launch_log=self.launch_log,
            mask=self.mask,
            signals=self.signals,
            grace_s=plan.grace_period_s,
            silence_s=plan.hang_timeout_s if ranks else 0.0,
            progress=f"{self.directory}/{METRICS}",
            metrics_rank=plan.metrics_rank,
            log_file=plan.log_file,
            log_limit=plan.log_limit,
            show_launcher=self.debug,
            on_signal=self._signalled,
            on_line=listen,
            poll=self._poll,
            stops=self._wants_stop if ranks else lambda: False,
        )

    def _poll(self) -> None:
        self.attendance.look()
        self.course.look()
        self.record.look()
        if self.hooks:
            self.hooks.poll()

    def _signalled(self, number: int) -> None:
        name = signal.Signals(number).name
        self.events.emit("signal", level="warning", signal=name)
        self.record.note(signal=name)
        self._say_once(f"primus: {name}: passed on to every rank; SIGKILL in {self.plan.grace_period_s:g} s\n")

    def _finish(self, ended: Ended, step: Step | None) -> int:
        code, first = ended.exit_code, None
        if ended.not_started:
            raise MachineError(f"{step.name if step else 'a step'} could not be started", why=ended.not_started)
        if code and not ended.signal:
            first = self._first_failure(ended, step)
            code = first.exit_code if first and step and step.ranks else code
            if full := closing.disk_is_full(self.directory):
                first = closing.for_want_of_space(first, code, full, self.plan.distributed.node_rank)
        status = "interrupted" if ended.signal and code else "failed" if code else COMPLETED
        why = first_failure.of_script(ended, step) if step and step.script else ""
        record = first.to_record() if first else None
        if code and step and step.script:
            record = {"rank": -1, "what": f"{step.name}: {why or f'exit code {code}'}"}
        if note := self.record.end(status, code, first_failure=record):
            self._note(note)
        self.events.emit("run_ended", status=status, exit_code=code, first_failure=record)
        self._tell(status, code, first)
        of_all = step is not None and step.kind in BEFORE_RANKS and self.plan.place.outer  # on one console
        say = self._say if status == "failed" and not of_all else self._say_once
        say(self._last_words(code, status, first, step, why))
        return code

    def _last_words(self, code: int, status: str, first: failure.Failure | None, step: Step | None, why: str) -> str:
        if self.dropped:
            self._note(f"{self.dropped} bytes of log text could not be written: disk full, or too slow?")
        if status != "failed":
            return closing.over(self.plan, status, time.time() - self.record.started)
        return closing.failed(self.plan, first, step, code, why=why, launch_log=self.launch_log, said=self._logged())

    def _first_failure(self, ended: Ended, step: Step | None) -> failure.Failure | None:
        return first_failure.of_step(self.plan, self.facts.hostname, ended, step, self._logged)

    @property
    def launch_log(self) -> str:
        """What torchrun and plain processes print; of each node that joined the run a file of its own."""
        return f"{self.directory}/{self.record.part}logs/launch.log"

    def _logged(self) -> str:
        """What the last step has printed there."""
        try:
            with open(self.launch_log, "rb") as file:
                file.seek(self.quiet_until)
                return file.read().decode("utf-8", "replace")
        except OSError:
            return ""

    def _note(self, text: str) -> None:
        self._say(f"primus: note: {text}\n")

    def _say_once(self, text: str) -> None:
        """What all nodes would say, node 0 does."""
        if not self.plan.distributed.node_rank:
            self._say(text)

    def _say(self, text: str) -> None:
        say(text)
        if self.plan.log_file:
            append(self.plan.log_file, text)


def _ranks(step: Step) -> str:
    return f": {step.ranks} rank{'s' if step.ranks > 1 else ''}" if step.ranks else ""
