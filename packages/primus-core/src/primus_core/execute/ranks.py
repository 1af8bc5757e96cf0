"""The innermost layer: hooks and patches, preparation, the ranks, the starts that follow a failure, the end."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from primus_core import requirements, variables
from primus_core.config import submission
from primus_core.contracts import launchers
from primus_core.contracts.observer import RunEnd, Stop
from primus_core.execute import observers
from primus_core.execute.launch import Launch, Replan
from primus_core.outcome import closing
from primus_core.outcome.attempts import Attempts
from primus_core.outcome.rank_ends import RankEnds
from primus_core.outcome.retry_policy import RetryPolicy
from primus_core.plan.plan import METRICS, Step
from primus_core.runs import snapshot
from primus_core.runs.record_writer import unwritable
from primus_core.runs.rundir import COMPLETED, as_line
from primus_machine.collectives import ROUTE_VARIABLES
from primus_machine.errors import MachineError
from primus_machine.files.capped_log import output_of
from primus_machine.own_process.stacks import Stacks
from primus_machine.supervision.program import Ended, Watch
from primus_machine.supervision.supervise import supervise

if TYPE_CHECKING:
    from primus_core.execute.failed import FailedStep

__all__ = ["RankLayer"]

_SHOWN = 5
"""So many differences from what was submitted are named on the console."""


class RankLayer:
    """The ranks of this node, and what is done for them."""

    def __init__(self, launch: Launch, replan: Replan) -> None:
        self.launch, self.record, self.events = launch, launch.record, launch.events
        self.replan = replan
        launch.watch_by(observers.of_ranks)
        self.observers, self.tell = launch.observers, launch.tell
        self.watching: Watch | None = None
        self.ends: RankEnds | None = None
        self.stacks = Stacks()
        """What knows the processes of the step in hand."""
        self.dropped = 0
        self.quiet_until = 0
        """Where in the launch log the step in hand began to print, in bytes."""
        self.has_said_stopping = False

    def save(self) -> None:
        """All that a replay needs."""
        launch = self.launch
        if note := snapshot.write(launch.plan, launch.facts, launch.environ, launch.mask.secrets):
            launch.note(note)

    def _save_again(self) -> None:
        try:
            self.save()
            self.record.write(status="started")
        except OSError as error:
            raise unwritable(self.launch.directory, error) from None

    def begin(self) -> None:
        """Greet, and name what is planned otherwise here than where the run was submitted."""
        plan = self.launch.plan
        self.tell(lambda one: one.run_started(plan))
        self.launch.greet(*([] if plan.place.outer else [as_line(self.launch.directory)]))  # that layer has shown it
        if not plan.distributed.node_rank and submission.of(self.launch.facts.host.environ):
            self._compare_with_submission()

    def _compare_with_submission(self) -> None:
        from primus_core.runs.submitting import differences

        if found := differences(self.launch.plan, self.launch.facts.host.environ):
            more = f"; {len(found) - _SHOWN} more in metadata.json" if len(found) > _SHOWN else ""
            self.launch.note(f"planned differently than at submission: {', '.join(map(str, found[:_SHOWN]))}{more}")
            self.tell(lambda one: one.learned(plan_differs=tuple(difference._asdict() for difference in found)))

    def run(self) -> int:
        """Scripts, then hooks, then the steps."""
        if any(step.script for step in self.launch.plan.steps):
            ended, step, skipped = self._scripts()
            if ended.exit_code:
                return self._finish(ended, step)
            if skipped:
                return self._skip(skipped)
        if stop := self.observers.before_ranks(self.launch.plan, self.launch.environ):
            return self._stopped(stop)
        ended, step = self._steps()
        if ended.stopped and (stop := self.observers.stop) and not ended.signal:
            return self._stopped(stop)
        return self._finish(ended, step)

    def close(self) -> None:
        """End what the observers have started."""
        self.tell(lambda one: one.close())

    def _scripts(self) -> tuple[Ended, Step | None, str]:
        """Run hooks and patches; how the last one ended, and why one of them finds nothing to launch."""
        from primus_core.execute.scripts import Scripts

        scripts = Scripts(self.launch, self.replan, lambda step, listen: self._step(step, on_line=listen))
        known = self.launch.mask.secrets
        try:
            ended, step = scripts.run()
        finally:
            if scripts.has_printed or self.launch.mask.secrets != known:  # what was saved may hold one
                self._save_again()
        return ended, step, scripts.skipped

    def _steps(self) -> tuple[Ended, Step | None]:
        ended, step, plan = Ended(0), None, self.launch.plan
        # a hook might have said it: until now, nobody knew
        requirements.check((one for one in plan.requires if one.kind == "login"), self.launch.environ)
        for planned in plan.steps:
            if planned.script:
                continue
            listen = self._take_route if planned.kind == "rendezvous" else None
            ended, step = self._attempts(planned) if planned.ranks else (self._step(planned, on_line=listen), planned)
            if ended.exit_code:
                break
        return ended, step

    def _take_route(self, line: bytes) -> None:
        """Let the ranks use the interface by which the nodes have met. What somebody has set stays."""
        name, _, interface = line.decode("utf-8", "replace").strip().removeprefix("env.").partition("=")
        if name in ROUTE_VARIABLES and name not in self.launch.environ:
            self.launch.environ = {**self.launch.environ, name: interface}

    def _attempts(self, worker: Step) -> tuple[Ended, Step]:
        """Start the worker, and again where that is wanted, brings progress, and finds the node fit."""
        plan = self.launch.plan
        attempts, policy = Attempts(self.record, self.events), RetryPolicy(plan.max_restarts)
        looks = [step for step in plan.steps if step.kind == "preflight"]
        steps = [worker]
        while True:
            attempts.begin()
            ended, step = self._in_turn(steps)
            failed = None if ended.went_well else self._failed(ended, step)
            attempts.end(failed.exit_code if failed else 0, failed.why if failed else "")
            if policy.wants_no_other(ended) or step is not worker:
                return ended, step
            if why := policy.find_obstacle(attempts.made, failed.rank if failed else None):
                self.launch.note(f"not started again: {why}")
                return ended, step
            self.launch.note(attempts.announce())
            steps = [*looks, worker]

    def _in_turn(self, steps: Sequence[Step]) -> tuple[Ended, Step]:
        """Until one of them fails."""
        *before, last = steps
        for step in before:
            if (ended := self._step(step)).exit_code:
                return ended, step
        return self._step(last), last

    def _step(self, step: Step, *, on_line: Callable[[bytes], None] | None = None) -> Ended:
        log = self.launch.log
        self.tell(lambda one: one.step_started(step))
        self.quiet_until = os.path.getsize(log) if os.path.exists(log) else 0
        ranks = f": {step.ranks} rank{'s' if step.ranks > 1 else ''}" if step.ranks else ""
        self.launch.say_once(f"primus: {step.name}{ranks}\n")
        environ = {**self.launch.environ, variables.IN_HOOK: "1"} if step.script else self.launch.environ
        self.stacks = Stacks()
        self.ends = self._rank_ends() if step.ranks else None
        self.watching = self._watch(on_line, ranks=bool(step.ranks))
        ended = supervise(step, environ, self.watching)
        if self.ends:
            self.ends.end(ended.exit_code, step.first_rank if step.ranks == 1 else None)
        self.dropped += ended.dropped
        self.tell(lambda one: one.step_ended(step, ended.exit_code))
        return ended

    def _rank_ends(self) -> RankEnds:
        plan = self.launch.plan
        return RankEnds(
            self._get_watch,
            plan.place.directory,
            plan.distributed,
            self.launch.facts.hostname,
            shares=bool(plan.framework) or bool(plan.worker and launchers.find(plan.worker.launcher).reports),
            say=self.launch.say,
        )

    def _get_watch(self) -> Watch:
        assert self.watching
        return self.watching

    def _watch(self, on_line: Callable[[bytes], None] | None, *, ranks: bool) -> Watch:
        plan = self.launch.plan
        return self.launch.watch(
            silence_s=plan.hang_timeout_s if ranks else 0.0,
            start_silence_s=(plan.start_timeout_s or plan.hang_timeout_s) if ranks else 0.0,
            progress=f"{self.launch.directory}/{METRICS}",
            metrics_rank=plan.metrics_rank,
            log_file=plan.log_file,
            log_limit=plan.log_limit,
            show_launcher=self.launch.debug,
            on_signal=self._signalled,
            on_line=on_line,
            poll=lambda: self.tell(lambda one: one.look(self._pids)),
            stops=self._shall_stop if ranks else lambda: False,
            may_end_hung=self._may_end_hung,
            cannot_continue=self.ends.cannot_continue if self.ends else lambda: False,
        )

    def _pids(self) -> Mapping[int, int]:
        """The processes of the ranks that have started, by rank."""
        return self.watching.pids() if self.watching else {}

    def _may_end_hung(self, silent_s: float) -> bool:
        """Whether ranks that hang have printed their stacks, and the observers have looked at them."""
        pids = self._pids()
        return self.stacks.are_printed(pids.values()) and self.observers.may_end_hung(silent_s, pids)

    def _signalled(self, number: int) -> None:
        name, grace_s = signal.Signals(number).name, self.launch.plan.grace_period_s
        self.tell(lambda one: one.signalled(name))
        self.launch.say_once(f"primus: {name}: passed on to every rank; SIGKILL in {grace_s:g} s\n")

    def _shall_stop(self) -> bool:
        """Whether an observer asks for the end of the ranks."""
        if not (stop := self.observers.stop):
            return False
        if not self.has_said_stopping:
            self.has_said_stopping = True
            reason, grace_s = self.launch.masked(stop.reason), self.launch.plan.grace_period_s
            self.launch.say(f"primus: stopping: {reason}; SIGKILL in {grace_s:g} s\n")
        return True

    # The end.

    def _skip(self, why: str) -> int:
        """A script finds nothing to launch."""
        why = self.launch.masked(why)
        self._end(RunEnd("skipped", 0, reason=why))
        self.launch.say(f"primus: not launched: {why}\n")
        return 0

    def _stopped(self, stop: Stop) -> int:
        """A hook has asked for the end; the ranks, if there were some, have ended."""
        reason, plan = self.launch.masked(stop.reason), self.launch.plan
        self._end(RunEnd("stopped", stop.exit_code, reason=reason))
        after = "".join(f"  next   {line}\n" for line in closing.next_lines(plan, "stopped"))
        self.launch.say(f"primus: stopped by a hook: {reason}\n  run    {self.launch.name}\n{after}")
        several = plan.place.outer and plan.distributed.nnodes > 1
        return stop.exit_code or int(bool(several))  # a scheduler ends the other nodes only where one fails

    def _finish(self, ended: Ended, step: Step | None) -> int:
        if ended.not_started:
            raise MachineError(f"{step.name if step else 'a step'} could not be started", why=ended.not_started)
        if self.dropped:
            self.launch.note(f"{self.dropped} bytes of log text could not be written: disk full, or too slow?")
        if ended.exit_code:
            return self._failed(ended, step).finish(self._end)
        self._end(RunEnd(COMPLETED, 0))
        self.launch.say_once(closing.not_failed(self.launch.plan, COMPLETED, self.launch.seconds))
        return 0

    def _failed(self, ended: Ended, step: Step | None) -> FailedStep:
        from primus_core.execute.failed import FailedStep  # most launches do not fail

        return FailedStep(self.launch, ended, step, self.ends, self._printed)

    def _end(self, end: RunEnd) -> None:
        end = end._replace(seconds=self.launch.seconds)
        self.tell(lambda one: one.ended(end))

    def _printed(self) -> str:
        """What the last step has printed in the launch log."""
        return output_of(self.launch.log, self.quiet_until)
