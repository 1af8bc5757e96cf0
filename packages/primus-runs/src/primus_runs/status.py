"""How a run stands, its scheduler asked, too: while its job waits, or once it was killed, a run says nothing itself."""

from __future__ import annotations

import glob
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from primus_core.contracts import schedulers
from primus_core.contracts.scheduler import FORGOTTEN, Job, Scheduler
from primus_core.journal import record
from primus_core.journal.record import RunRecord
from primus_core.runs.state import ENDED, process_here, state_of
from primus_machine.host import HostRoot

__all__ = ["RunStatus", "refined", "status_of", "statuses"]

_BEGAN_AGAIN = ("failed", "interrupted")
"""What a run says of itself whose job may have been put back into the queue since."""
_NUMBER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:@\[\]-]{0,127}")
"""As the schedulers of this world name jobs: `4711`, `4711.pbs01`, `4711[3]`, `train-x7k2p`."""
_ASKED_AT_ONCE = 500
"""So many runs are asked about with one question, also where the list needs fewer."""


class _Key(NamedTuple):
    """A job, and where it is asked for."""

    scheduler: Scheduler
    cluster: str
    number: str

    @property
    def place(self) -> tuple[Scheduler, str]:
        """Who is asked."""
        return self.scheduler, self.cluster


class RunStatus(NamedTuple):
    """One run at one moment."""

    state: str
    known: RunRecord
    job: Job | None = None
    """Its job, if it has one and the scheduler answers; never one that got the same number later."""


def status_of(directory: str, host: HostRoot) -> RunStatus:
    """How the run stands. Its scheduler is asked only where that can tell more than the run itself."""
    known = record.read(directory)
    if key := _key(known, directory, host):
        scheduler, cluster, number = key
        return _status(known, directory, host, scheduler.look(number, host.environ, cluster))
    return _status(known, directory, host, None)


def statuses(runs: Sequence[tuple[str, RunRecord | None]], host: HostRoot) -> Iterator[RunStatus]:
    """The same for many runs, with few questions. Each is read when its turn comes, unless its metadata is given."""
    answers: dict[_Key, Job | None] = {}
    for index, (directory, given) in enumerate(runs):
        known = record.read(directory) if given is None else given
        key = _key(known, directory, host)
        if key and key not in answers:
            page = [_key(record.read(path), path, host) for path, _ in runs[index : index + _ASKED_AT_ONCE]]
            answers |= _answers(dict.fromkeys([key, *filter(None, page)]), answers, host)
        yield _status(known, directory, host, answers[key] if key else None)


def _answers(keys: Iterable[_Key], earlier: Mapping[_Key, Job | None], host: HostRoot) -> dict[_Key, Job | None]:
    """The jobs, with one question to each cluster; None of one that answers nothing."""
    answers = dict.fromkeys(keys)
    silent = {key.place for key, job in earlier.items() if job is None}  # a second wait would bring no more
    for scheduler, cluster in {key.place for key in answers} - silent:
        numbers = [key.number for key in answers if key.place == (scheduler, cluster)]
        jobs = scheduler.ask(numbers, host.environ, cluster)
        answers |= {_Key(scheduler, cluster, number): job for number, job in jobs.items()}
    return answers


def _status(known: RunRecord, directory: str, host: HostRoot, job: Job | None) -> RunStatus:
    """How a run stands, in the light of what the scheduler says of its job."""
    if job and job.has_ended:  # the run may have ended since, and said so
        known = record.read(directory)
    if job and job.is_of(known) is False:
        job = Job(job.number, FORGOTTEN)
    state = state_of(known, directory, host)
    if job and state == "running" and not process_here(directory, host):
        state = "started"  # its scheduler knows of its end before its lease runs out
    return RunStatus(refined(state, known, job) if job else state, known, job)


def _key(known: RunRecord, directory: str, host: HostRoot) -> _Key | None:
    if not (scheduler := schedulers.of_run(known)):
        return None
    number = _job_of(known, directory, host, scheduler)
    return _Key(scheduler, known.cluster, number) if number else None


def _job_of(known: RunRecord, directory: str, host: HostRoot, scheduler: Scheduler) -> str:
    """The number of the job that can tell how the run stands; empty: there is none."""
    state = state_of(known, directory, host)
    if state in ("submitted", "started", "lost", "incomplete") or (state in _BEGAN_AGAIN and known.submitted):
        return _number(known) or _job_of_nodes(known, directory, scheduler)
    if state != "running":
        return ""
    if _number(known):  # `primus stop` needs the job of a process that it cannot reach
        return "" if process_here(directory, host) else _number(known)
    return _job_of_nodes(known, directory, scheduler)


def _job_of_nodes(known: RunRecord, directory: str, scheduler: Scheduler) -> str:
    """The job that a step made for itself: its nodes know it, and before they begin, its scheduler's words tell it."""
    if scheduler.name not in (known.runtime, known.scheduler_name):
        return ""  # it has nothing to do with this run
    for path in sorted(glob.glob(f"{glob.escape(directory)}/nodes/*")):
        if number := _number(record.read(path)):
            return number
    return scheduler.job_of(directory)


def refined(state: str, known: RunRecord, job: Job) -> str:
    """What `state` is, if the run's job stands so."""
    if state == "unknown" or (state in ENDED and state not in _BEGAN_AGAIN):
        return state
    if job.is_pending:
        return "pending"
    if state in (*_BEGAN_AGAIN, "running"):
        return state
    if job.is_running:
        return "running"
    if job.state == FORGOTTEN or not known.submitted:
        return "incomplete" if state == "incomplete" else "lost"
    return job.outcome or "failed"


def _number(known: RunRecord) -> str:
    """The job's number; nothing that a damaged file has in its place reaches a command line."""
    return known.job_id if _NUMBER.fullmatch(known.job_id) else ""
