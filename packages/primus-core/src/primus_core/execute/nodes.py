"""The nodes of one attempt of a job: what each says of itself in the run directory, and what its scheduler says.

A failure on one node makes others fail, and a node that is lost says nothing: who failed first is found out here.
"""

from __future__ import annotations

import glob
import os
import re
import signal
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from primus_core.config.system import PREFLIGHT
from primus_core.contracts.scheduler import Job, Printed, Scheduler
from primus_core.process.failure import OWN_SIGNALS
from primus_core.runs.saved import metadata

__all__ = ["Nodes", "Verdict", "set_aside"]

_EVERY_S = 5.0
_MARGIN_S = 10.0
"""So much longer than its own grace a node may take after another one failed."""
_PATIENCE_S = 20.0
_TOLD = 128 + signal.SIGTERM

_ERROR = re.compile(r"primus: error: (.+)")


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

    def to_dict(self) -> dict[str, Any]:
        """As the first failure in `metadata.json`."""
        return {"rank": self.rank, "node_rank": self.node_rank, "what": self.what}


class _Node(NamedTuple):
    rank: int
    known: Mapping[str, Any]

    @property
    def name(self) -> str:
        return str(self.known.get("node") or self.known.get("host"))

    @property
    def is_silent(self) -> bool:
        """Whether it began, and neither ended nor was told to."""
        return not {"ended", "signal"} & self.known.keys()

    @property
    def is_ending(self) -> bool:
        """Whether it was told to end, and has not yet."""
        return "signal" in self.known and "ended" not in self.known

    @property
    def failed_itself(self) -> bool:
        """Whether it failed otherwise than by the signal with which a scheduler ends the others."""
        return self.known.get("status") == "failed" and self.known.get("exit_code") != _TOLD

    @property
    def failure(self) -> Mapping[str, Any]:
        return self.known.get("first_failure") or {}

    @property
    def order(self) -> tuple[bool, float]:
        """By who failed first: a rank that was killed comes before all that raise, which may follow from it."""
        killed = self.failure.get("rank", -1) >= 0 and self.failure.get("exit_code", 0) - 128 in OWN_SIGNALS
        return not killed, self.failure.get("time") or self.known.get("ended") or float("inf")


def set_aside(directory: str, attempt: int) -> None:
    """Keep what the nodes of an attempt said, of it and of themselves, apart from what those of the next one say."""
    if os.path.isdir(found := f"{directory}/{PREFLIGHT}"):
        os.rename(found, f"{found}_{attempt}")
    for path in glob.glob(f"{glob.escape(directory)}/nodes/*/metadata.json"):
        os.replace(path, f"{path.removesuffix('.json')}_{attempt}.json")


class Nodes:
    """Those that `directory` knows. `together`: where one fails, the others wait in vain. `log`: what the step's
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
        self.watcher = threading.Thread(target=self._look, daemon=True)
        self.ended, self.hopeless = threading.Event(), False

    def in_vain(self) -> bool:
        """Whether the step waits for what will not come; it is found out beside, and this only says what is known."""
        if self.watcher.ident is None:
            self.watcher.start()
        return self.hopeless

    def leave(self) -> None:
        """Look no more: the step has ended."""
        self.ended.set()
        if self.watcher.ident is not None:
            self.watcher.join(_PATIENCE_S)

    def _look(self) -> None:
        """Now and then; the more nodes, the more seldom."""
        times = 0
        while not self.ended.wait(max(_EVERY_S, len(self._paths()) / 50)):
            times = times + 1 if self._job_is_over() or self._node_failed_long_ago() else 0
            self.hopeless = times > 1

    def _job_is_over(self) -> bool:
        """A job that the step made itself; srun has been seen to wait for ever where a node of it was lost."""
        if self.own.get("job_id") or not (number := self._job_id()):
            return False
        job = self.scheduler.look(number, self.environ)
        self.job = job or self.job
        return bool(job and job.is_over)

    def _job_id(self) -> str:
        return next((str(node.known["job_id"]) for node in self._nodes() if node.known.get("job_id")), "")

    def _node_failed_long_ago(self) -> bool:
        ends = [node.known.get("ended", float("inf")) for node in self._nodes() if node.known.get("status") == "failed"]
        return min(ends, default=float("inf")) + self.patience_s < time.time()

    @property
    def have_begun(self) -> bool:
        """Whether any of them has."""
        return bool(self._paths())

    @property
    def comes_again(self) -> bool:
        """Whether the scheduler has put the job back into the queue."""
        begun = self.own.get("restart", "0")
        return bool(self.job and begun.isdecimal() and self.job.restarts > int(begun))

    def settle(self) -> None:
        """Wait until those that are told to end have done so: the next attempt may get their GPUs."""
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
        return glob.glob(f"{glob.escape(self.directory)}/nodes/*/metadata.json")

    def _nodes(self) -> list[_Node]:
        ranks = (int(os.path.basename(os.path.dirname(path))) for path in self._paths())
        return [_Node(rank, metadata(f"{self.directory}/nodes/{rank}")) for rank in sorted(ranks)]

    def _printed(self) -> Printed:
        return self.scheduler.printed(self._text())

    def _text(self) -> str:
        try:
            with open(self.log, "rb") as file:
                file.seek(self.begins_at)
                return file.read().decode("utf-8", "replace")
        except OSError:
            return ""


def _refusal(printed: Printed, text: str) -> Verdict:
    """Of a node that began nothing, since its request is wrong or it lacks something, and so has no record."""
    codes = [(code, host) for host, code in printed.exited if code in (2, 3)]
    errors = _ERROR.findall(text)
    return Verdict(f"{codes[0][1]}: {errors[-1]}", exit_code=codes[0][0]) if codes and errors else Verdict("")


def _first(nodes: Sequence[_Node], *, cancelled: bool) -> Verdict:
    """What the nodes say themselves."""
    if stopped := [node for node in nodes if node.known.get("status") == "stopped"]:
        reason, code = (stopped[0].known.get(name) for name in ("reason", "exit_code"))
        what = f"stopped by a hook: {reason}"
        return Verdict(what, node_rank=stopped[0].rank, exit_code=code if isinstance(code, int) else 1, cancelled=True)
    if failed := sorted((node for node in nodes if node.known.get("status") == "failed"), key=lambda node: node.order):
        return _of(failed[0])
    if cancelled:
        return Verdict("the job was cancelled", by_others=True, cancelled=True)
    if told := [node for node in nodes if node.known.get("status") == "interrupted"]:
        first = min(told, key=lambda node: node.known.get("ended", 0.0))
        what = f"Primus on {first.name} was told to end"
        return Verdict(what, node_rank=first.rank, by_others=True, cancelled=True)
    return Verdict("")


def _of(node: _Node) -> Verdict:
    failure = node.failure
    what = str(failure.get("what") or f"exit code {node.known.get('exit_code')}")
    code = node.known.get("exit_code")
    return Verdict(what, failure.get("rank", -1), node.rank, code if isinstance(code, int) else 0)
