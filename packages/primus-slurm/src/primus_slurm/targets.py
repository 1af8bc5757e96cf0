"""What `primus stop` ends on Slurm: a job, or the step of one."""

from __future__ import annotations

import time
from collections.abc import Sequence

from primus_core.contracts.scheduler import Job, Target
from primus_core.journal import record
from primus_core.journal.record import RunRecord
from primus_machine.errors import MachineError
from primus_machine.host import HostRoot
from primus_slurm import queries, stop

__all__ = ["target_of"]

_ASK_S = 1.0
"""Slurm is asked so often at most."""
_SETTLES_S = 5.0
"""After the end of its job, a run's own Primus has so long to say how it ended."""


def target_of(directory: str, job: Job, known: RunRecord, host: HostRoot) -> Target | None:
    """The job that was submitted, or that still waits; of one that srun made, the ranks' step."""
    if known.submitted or job.is_pending:
        return JobTarget(directory, job, host)
    step = stop.step_of(directory)
    return StepTarget(directory, job, host, step) if step else None


class JobTarget:
    """The job that was submitted for the run, or the one that its srun waits for."""

    def __init__(self, directory: str, job: Job, host: HostRoot) -> None:
        self.directory, self.host, self.job = directory, host, job
        self.asked_in: set[str] = set()
        self.ask_at = 0.0
        self.over_at = float("inf")

    def is_running(self) -> bool:
        now = time.monotonic()
        if now >= self.ask_at:
            self.ask_at = now + _ASK_S
            self._look()
        if self._is_there():
            return True
        self.over_at = min(self.over_at, now)
        return record.read(self.directory).status in ("preparing", "started") and now < self.over_at + _SETTLES_S

    def _look(self) -> None:
        """A job that goes through several states, as one that is put back into the queue, is told in each."""
        self.job = self._asked()
        if self._is_there() and self.job.state not in self.asked_in:
            self.asked_in.add(self.job.state)
            self._ask()

    def _asked(self) -> Job:
        """The job as it stands now; as it stood, where the scheduler does not answer."""
        known = record.read(self.directory)  # not by `status_of`: of a run that says it is completed, that asks no more
        job = queries.look(self.job.number, self.host.environ, _cluster(self.directory))
        return queries.forgotten(job.number) if job and job.is_of(known) is False else job or self.job

    def _is_there(self) -> bool:
        return not self.job.has_ended

    def _ask(self) -> None:
        """A job that waits is withdrawn, unless it begins in this very moment. One that runs is told through its own
        Primus, which gives the ranks their whole grace: Slurm itself would kill them after its KillWait.
        """
        if self.job.state != "COMPLETING":
            flags = {"PENDING": ("--state=PENDING",), "RUNNING": ("--signal=TERM", "--batch")}
            self._cancel(self.job.number, flags.get(self.job.state, ()))

    def _cancel(self, target: str, flags: Sequence[str]) -> None:
        why = queries.cancel(target, flags, self.host.environ, _cluster(self.directory))
        self.job = self._asked()
        if why and self._is_there():
            raise MachineError(
                f"{self.name()} of {self.directory} could not be ended",
                why=why,
                fix=f"kill it by hand: {self.kill_command()}",
            )

    def name(self) -> str:
        return f"job {self.job.number} ({self.job.state})"

    def kill_command(self) -> str:
        return f"scancel {self.job.number}"


class StepTarget(JobTarget):
    """The ranks that an srun on another host started: with them that srun ends, and the job if it made one."""

    def __init__(self, directory: str, job: Job, host: HostRoot, step: str) -> None:
        super().__init__(directory, job, host)
        self.step, self.there = step, True

    def _look(self) -> None:
        self.there = queries.has_step(self.step, self.host.environ, _cluster(self.directory))
        if self.there and not self.asked_in:
            self.asked_in.add(self.job.state)
            self._cancel(self.step, ("--signal=TERM",))

    def _is_there(self) -> bool:
        return self.there

    def name(self) -> str:
        return f"step {self.step}"

    def kill_command(self) -> str:
        return f"scancel {self.step}"


def _cluster(directory: str) -> str:
    return record.read(directory).cluster
