"""Runs a step on the nodes of a scheduler's job, and again on them or on others where that is wanted."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import replace

from primus_core.contracts import schedulers
from primus_core.contracts.scheduler import Scheduler
from primus_core.journal.events import Events
from primus_core.multinode import added_flags
from primus_core.multinode.node_ends import Nodes, Verdict, set_aside
from primus_core.outcome.attempts import Attempts
from primus_core.outcome.failure import last_words
from primus_core.outcome.retry_policy import FailedRank, RetryPolicy
from primus_core.output.console import say
from primus_core.plan.plan import AddedFlag, Plan, SchedulerStep, Step
from primus_core.runs.record_writer import RecordWriter
from primus_machine.files.capped_log import output_of
from primus_machine.keeper import WARNINGS
from primus_machine.supervision.program import Ended, Watch
from primus_machine.supervision.supervise import supervise

__all__ = ["JobStep"]


class JobStep:
    """The attempts at such a step. `log`: what its program prints; `watch()`: how to stay with one."""

    def __init__(
        self,
        plan: Plan,
        record: RecordWriter,
        events: Events,
        environ: Mapping[str, str],
        *,
        log: str,
        watch: Callable[[], Watch],
    ) -> None:
        self.plan, self.record, self.events, self.environ, self.log, self.watch = (
            *(plan, record, events, environ, log, watch),
        )
        self.asked: SchedulerStep
        self.scheduler: Scheduler
        self.policy: RetryPolicy
        self.verdict = Verdict("")
        """Why the latest one ended."""
        self.requeued = False
        """The job begins again, and the run goes on with it."""
        self.left_out: list[str] = []
        """Nodes that failed."""

    def run(self, step: Step, asked: SchedulerStep) -> Ended:
        """How the last attempt ended.

        Raises:
            MachineError: its scheduler is not installed here.
        """
        self.asked, self.scheduler = asked, schedulers.find(asked.name)
        attempts, self.policy = Attempts(self.record, self.events), RetryPolicy(self.plan.max_restarts, asked.spares)
        if why := self.policy.find_obstacle(attempts.made):  # and the scheduler started the job again all the same
            self.verdict = Verdict(f"not started again: {why}")
            return Ended(1)
        while True:
            set_aside(self.record.directory, len(attempts.made))
            attempts.begin()
            self.record.note()
            nodes = self._nodes()
            ended = self._taken_over(self._attempt(step, nodes), nodes)
            self._judge(ended, nodes, attempts)
            if self._is_requeued(ended, nodes, attempts):
                self._leave_to_queue(ended)
                return ended
            if not self._starts_again(ended, nodes, attempts):
                return ended
            say(f"primus: note: {attempts.announce()}\n")
            nodes.settle()

    def _nodes(self) -> Nodes:
        return Nodes(
            self.record.directory,
            self.environ,
            self.scheduler,
            log=self.log,
            grace_s=self.plan.grace_period_s,
            together=self.asked.together,
        )

    def _attempt(self, step: Step, nodes: Nodes) -> Ended:
        if self.left_out and self.asked.leaves_out:
            argv = tuple(self.scheduler.without(step.argv, self.left_out))
            named = tuple(AddedFlag(word, "") for word in argv if word not in step.argv)
            step = step._replace(argv=argv, added=(*step.added, *named))
        begins_at = os.path.getsize(self.log) if os.path.exists(self.log) else 0
        ended = added_flags.started(
            step._replace(added=() if nodes.have_begun else step.added),
            lambda one: supervise(one, self.environ, replace(self.watch(), gives_up=nodes.gives_up)),
            lambda: "" if nodes.have_begun else output_of(self.log, begins_at),
            lambda text: say(f"primus: note: {text}\n"),
        )
        nodes.leave()
        return ended

    def _taken_over(self, ended: Ended, nodes: Nodes) -> Ended:
        """The same; a success where one node failed, and another has done what was left."""
        if not (self.asked.takes_over and ended.exit_code and not ended.signal and nodes.have_completed):
            return ended
        found = nodes.verdict()
        say(f"primus: note: {_where(found)}{found.what}: another node has taken over\n")
        return replace(ended, exit_code=0)

    def _judge(self, ended: Ended, nodes: Nodes, attempts: Attempts) -> None:
        """Find out why an attempt ended, and record it."""
        found = self._why(ended, nodes) if ended.exit_code or ended.signal else Verdict("")
        self.verdict = found
        self.left_out += [name for name in found.lost if name not in self.left_out]
        code = found.exit_code or ended.exit_code
        what = found.what or (last_words(self.log) if code else "")
        attempts.end(code, what, by_others=found.by_others and ended.signal not in WARNINGS, lost_nodes=found.lost)
        if found.what:
            which = f"attempt {len(attempts.made)} " if self.plan.max_restarts or len(attempts.made) > 1 else ""
            say(f"primus: {self.plan.runtime}: {which}ended: {_where(found)}{found.what}\n")

    def _why(self, ended: Ended, nodes: Nodes) -> Verdict:
        """Why it ended. A signal to Primus may have been the scheduler's, which knows what for."""
        if not ended.signal:
            return nodes.verdict()
        by_scheduler = nodes.by_scheduler()
        return by_scheduler if by_scheduler.what else Verdict(_meaning_of(ended.signal), by_others=True, is_signal=True)

    def _is_requeued(self, ended: Ended, nodes: Nodes, attempts: Attempts) -> bool:
        """Whether the whole job begins again: the scheduler says so, or its time ends and it shall."""
        warned = bool(ended.signal in WARNINGS and self.asked.requeue and not self.policy.find_obstacle(attempts.made))
        return bool(ended.exit_code) and (nodes.comes_again or warned)

    def _leave_to_queue(self, ended: Ended) -> None:
        self.requeued = True
        self.events.emit("requeued", level="warning", why=self.verdict.what)
        self.record.note("submitted", job_id=self.scheduler.numbers(self.environ).get("job_id", ""))
        say(f"primus: {self.plan.runtime}: the job waits in the queue again\n")
        if ended.signal in WARNINGS:
            self.scheduler.requeue(self.asked.requeue, self.environ)  # which ends this process, too

    def _starts_again(self, ended: Ended, nodes: Nodes, attempts: Attempts) -> bool:
        """Whether the step is started again."""
        if self.policy.wants_no_other(ended) or self.verdict.cancelled or not nodes.have_begun:
            return False
        failed = FailedRank(self.verdict.exit_code if self.verdict.rank >= 0 else 0, self.verdict.is_refusal)
        if why := self.policy.find_obstacle(attempts.made, failed, lost=self.left_out):
            say(f"primus: note: not started again: {why}\n")
        return not why


def _meaning_of(number: int) -> str:
    """What a signal to Primus means."""
    name = signal.Signals(number).name if number else ""
    return f"received {name}: close to the job's time limit" if number in WARNINGS else f"stopped by {name}"


def _where(verdict: Verdict) -> str:
    rank = f"rank {verdict.rank} on " if verdict.rank >= 0 else ""
    return f"{rank}node {verdict.node_rank}: " if verdict.node_rank >= 0 else ""
