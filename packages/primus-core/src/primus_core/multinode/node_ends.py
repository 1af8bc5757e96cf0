"""The nodes of one attempt of a job: what each says of itself in the run directory, and what its scheduler says.

A failure on one node makes others fail, and a node that is lost says nothing: who failed first is found out here.
"""

from __future__ import annotations

import glob
import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from primus_core.config.system import PREFLIGHT
from primus_core.contracts.scheduler import Job, Printed, Scheduler
from primus_core.installed import faults
from primus_core.journal import record
from primus_core.journal.record import FirstFailure, RunRecord
from primus_core.outcome.failure import OWN_SIGNALS
from primus_core.output.console import say
from primus_core.runs.rundir import COMPLETED
from primus_machine.errors import printed_in
from primus_machine.files.capped_log import output_of

__all__ = ["Nodes", "Verdict", "set_aside"]

_EVERY_S = 5.0
_LOOKS = 3
_MARGIN_S = 10.0
"""So much longer than its own grace a node may take after another one failed."""
_PATIENCE_S = 20.0
_TERMINATED = 128 + signal.SIGTERM


class Verdict(NamedTuple):
    """Why an attempt ended."""

    what: str
    rank: int = -1
    """The global rank that failed first; -1: it was none, or nobody knows."""
    node_rank: int = -1
    exit_code: int = 0
    """Of the node that failed first; 0: it has none."""
    lost: tuple[str, ...] = ()
    """Nodes that failed by themselves, as the scheduler calls them."""
    by_others: bool = False
    """Nothing failed: the job was cancelled, preempted, or out of time."""
    cancelled: bool = False
    """A person wanted its end."""
    is_refusal: bool = False
    """The request is wrong, and would be refused again."""
    is_signal: bool = False
    """Nothing more is known than the signal that Primus got."""

    def to_record(self) -> FirstFailure:
        """As the first failure in the run's record."""
        return FirstFailure(self.rank, self.what, self.node_rank)


class _Node(NamedTuple):
    rank: int
    known: RunRecord

    @property
    def name(self) -> str:
        return self.known.node or self.known.host

    @property
    def is_silent(self) -> bool:
        """Whether it began, and neither ended nor was asked to."""
        return self.known.ended is None and not self.known.signal

    @property
    def is_ending(self) -> bool:
        """Whether it was asked to end, and has not yet."""
        return bool(self.known.signal) and self.known.ended is None

    @property
    def failed_itself(self) -> bool:
        """Whether it failed otherwise than by the signal with which a scheduler ends the others."""
        return self.known.status == "failed" and self.known.exit_code != _TERMINATED

    @property
    def failure(self) -> FirstFailure:
        return self.known.first_failure or FirstFailure()

    @property
    def order(self) -> tuple[bool, float]:
        """By who failed first: a rank that was killed comes before all that raise, which may follow from it."""
        killed = self.failure.rank >= 0 and (self.failure.exit_code or 0) - 128 in OWN_SIGNALS
        return not killed, self.failure.time or self.known.ended or float("inf")


def set_aside(directory: str, attempt: int) -> None:
    """Keep the reports of the nodes of an attempt apart from those of the next one."""
    if os.path.isdir(found := f"{directory}/{PREFLIGHT}"):
        os.rename(found, f"{found}_{attempt}")
    for path in glob.glob(f"{glob.escape(directory)}/nodes/*/{record.FILE}"):
        os.replace(path, f"{path.removesuffix('.json')}_{attempt}.json")


class Nodes:
    """Those that `directory` knows. `together`: if one fails, the others cannot continue. `log`: what the step's
    program prints, which started them.
    """

    def __init__(
        self,
        directory: str,
        environ: Mapping[str, str],
        scheduler: Scheduler,
        *,
        log: str,
        grace_s: float,
        together: bool,
    ) -> None:
        self.directory, self.environ, self.scheduler, self.log = directory, environ, scheduler, log
        self.own = scheduler.numbers(environ)
        self.patience_s = grace_s + _MARGIN_S if together else float("inf")
        self.begins_at = os.path.getsize(log) if os.path.exists(log) else 0
        self.job: Job | None = None
        self.watcher = threading.Thread(target=self._watch, daemon=True)
        self.ended, self.hopeless = threading.Event(), False

    def gives_up(self) -> bool:
        """Whether the step waits for what will not come; it is found out beside, and this only says what is known."""
        if self.watcher.ident is None:
            self.watcher.start()
        return self.hopeless

    def leave(self) -> None:
        """Look no more: the step has ended."""
        self.ended.set()
        if self.watcher.ident is not None:
            self.watcher.join(_PATIENCE_S)

    def _watch(self) -> None:
        """Until the step has ended: a scheduler that breaks ends no ranks that run."""
        try:
            self._look()
        except Exception as error:  # whatever another package's scheduler raises
            if not (found := faults.of_plugin(error)):
                raise
            say(f"primus: note: {found.what}, so no job is watched: {found.why.partition(chr(10))[0]}\n")

    def _look(self) -> None:
        """Now and then; the more nodes, the more seldom."""
        times, waits = 0, self._waits()
        while not self.ended.wait(max(_EVERY_S, len(self._paths()) / 50)):
            next(waits, None)
            times = times + 1 if self._job_is_over() or self._node_failed_long_ago() else 0
            self.hopeless = times > 1

    def _waits(self) -> Iterator[None]:
        """Look some times, once a turn, what the step waits for, and say so."""
        for turn in range(1, _LOOKS + 1):
            if self.have_begun:
                return
            who = "step" if self.own.get("job_id") else "job"
            if what := self.scheduler.waits(self.environ) if who == "step" else self._queued(turn):
                say(f"primus: note: the {who} waits, so that no node has begun: {what}\n")
                return
            yield

    def _queued(self, turn: int) -> str:
        """The job that the step made, and why it is in the queue; empty: it is not, or may start at once."""
        number = self.scheduler.job_of(self.directory) if turn == _LOOKS else ""
        job = self.scheduler.look(number, self.environ) if number else None
        return f"job {number} is in the queue ({job.reason}); Ctrl-C withdraws it" if job and job.is_pending else ""

    def _job_is_over(self) -> bool:
        """A job that the step made itself; srun has been seen to wait for ever where a node of it was lost."""
        if self.own.get("job_id") or not (number := self._job_id()):
            return False
        job = self.scheduler.look(number, self.environ)
        self.job = job or self.job
        return bool(job and job.has_ended)

    def _job_id(self) -> str:
        return next((node.known.job_id for node in self._nodes() if node.known.job_id), "")

    def _node_failed_long_ago(self) -> bool:
        ends = [node.known.ended or float("inf") for node in self._nodes() if node.known.status == "failed"]
        return min(ends, default=float("inf")) + self.patience_s < time.time()

    @property
    def have_begun(self) -> bool:
        """Whether any of them has."""
        return bool(self._paths())

    @property
    def have_completed(self) -> bool:
        """Whether any of them has ended well."""
        return any(node.known.status == COMPLETED for node in self._nodes())

    @property
    def comes_again(self) -> bool:
        """Whether the scheduler has put the job back into the queue."""
        begun = self.own.get("restart", "0")
        return bool(self.job and begun.isdecimal() and self.job.restarts > int(begun))

    def settle(self) -> None:
        """Wait until those that were asked to end have done so: the next attempt may get their GPUs."""
        deadline = time.monotonic() + min(self.patience_s, 60.0)
        while time.monotonic() < deadline and any(node.is_ending for node in self._nodes()):
            time.sleep(0.2)

    def by_scheduler(self) -> Verdict:
        """Why the scheduler ended it, as far as it says so: nothing failed then."""
        job = self._look_up(self._nodes())
        return Verdict(self._printed().ended_by or (job.ended_by if job else ""), by_others=True)

    def verdict(self) -> Verdict:
        """Why the step failed."""
        nodes, printed = self._nodes(), self._printed()
        refused = _refusal(printed, self._text())
        if not nodes:
            return refused  # else the step's program says why
        if (found := self.by_scheduler()).what:
            return found
        if printed.is_cancelled and not printed.lost and not any(node.failed_itself for node in nodes):
            return Verdict("the job step was cancelled", by_others=True, cancelled=True)
        names = dict.fromkeys(printed.lost)
        silent = [node for node in nodes if node.is_silent]
        if refused.what and not any(node.failed_itself for node in nodes):
            return refused
        if names or silent:
            return self._lost([*names, *(node.name for node in silent if node.name not in names)], nodes)
        job = self._look_up(nodes)
        return _first(nodes, cancelled=bool(job and job.is_cancelled))

    def _look_up(self, nodes: Sequence[_Node]) -> Job | None:
        number = self.own.get("job_id") or self._job_id()
        self.job = self.job or (self.scheduler.look(number, self.environ) if number else None)
        return self.job

    def _lost(self, names: Sequence[str], nodes: Sequence[_Node]) -> Verdict:
        """`names`: what the scheduler misses, and what fell silent: losing one, it may have killed the tasks of all."""
        troubles = self.scheduler.troubles(names, self.environ)
        lost = [name for name in names if name in troubles] or list(names)
        rank = next((node.rank for node in nodes if node.name == lost[0]), -1)
        known = f"{lost[0]} is lost: {self.scheduler.title} says {troubles[lost[0]]}" if troubles else ""
        what = known or f"Primus on {lost[0]} was killed, or answers no more"
        return Verdict(what, node_rank=rank, exit_code=1, lost=tuple(lost))

    def _paths(self) -> list[str]:
        return glob.glob(f"{glob.escape(self.directory)}/nodes/*/{record.FILE}")

    def _nodes(self) -> list[_Node]:
        ranks = (int(os.path.basename(os.path.dirname(path))) for path in self._paths())
        return [_Node(rank, record.read(f"{self.directory}/nodes/{rank}")) for rank in sorted(ranks)]

    def _printed(self) -> Printed:
        return self.scheduler.printed(self._text())

    def _text(self) -> str:
        return output_of(self.log, self.begins_at)


def _refusal(printed: Printed, text: str) -> Verdict:
    """Of a node that began nothing, since its request is wrong or it lacks something, and so has no record."""
    codes = [(code, host) for host, code in printed.exited if code in (2, 3)]
    errors = printed_in(text)
    return Verdict(f"{codes[0][1]}: {_line(errors[-1])}", exit_code=codes[0][0]) if codes and errors else Verdict("")


def _line(error: str) -> str:
    """What happened, without why and what to do."""
    return error.partition("\n")[0]


def _first(nodes: Sequence[_Node], *, cancelled: bool) -> Verdict:
    """What the nodes say themselves."""
    if stopped := [node for node in nodes if node.known.status == "stopped"]:
        what, code = f"stopped by a hook: {stopped[0].known.reason}", stopped[0].known.exit_code
        return Verdict(what, node_rank=stopped[0].rank, exit_code=1 if code is None else code, cancelled=True)
    if failed := sorted((node for node in nodes if node.known.status == "failed"), key=lambda node: node.order):
        return _of(failed[0])
    if cancelled:
        return Verdict("the job was cancelled", by_others=True, cancelled=True)
    if interrupted := [node for node in nodes if node.known.status == "interrupted"]:
        first = min(interrupted, key=lambda node: node.known.ended or 0.0)
        return Verdict(f"Primus on {first.name} was interrupted", node_rank=first.rank, by_others=True, cancelled=True)
    return Verdict("")


def _of(node: _Node) -> Verdict:
    failure = node.failure
    what = failure.what or f"exit code {node.known.exit_code}"
    # The rank that it names may have left on another node.
    where = failure.node_rank if failure.rank >= 0 and failure.node_rank is not None else node.rank
    return Verdict(what, failure.rank, where, node.known.exit_code or 0, is_refusal=failure.is_refusal)
