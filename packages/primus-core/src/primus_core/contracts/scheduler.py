"""What a scheduler is: what it says of this process, of jobs, and of a step that ended. Entry-point group
`primus.schedulers`: the entry point names an instance.

A scheduler that does not answer is no error: its methods say that nothing is known, within a few seconds. The number
of a job is what its scheduler calls it: letters, digits and `_.:@[]-`, of which the first is a letter or a digit.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

if TYPE_CHECKING:
    from primus_core.journal.record import RunRecord
    from primus_machine.host import HostRoot

__all__ = ["FORGOTTEN", "Job", "Phase", "Printed", "Scheduler", "Target"]

Phase = Literal["pending", "running", "ended"]
FORGOTTEN = "FORGOTTEN"
"""The state of a job that its scheduler does not know: it ended some minutes ago or more, or there never was one."""
_SLACK_S = 300
"""A job was submitted so much after its run began only if it is another one, whatever clocks were set."""


class Job(NamedTuple):
    """A job as its scheduler reports it. Empty and None: not reported."""

    number: str
    state: str
    """The state in the scheduler's own words."""
    phase: Phase = "ended"
    """`pending`: also a requeued job; `running`: also one that is completing."""
    outcome: Literal["", "completed", "interrupted"] = ""
    """The outcome of an ended job, if its state shows it."""
    ended_by: str = ""
    """Why the scheduler ended it, such as a time limit or preemption; empty: it did not."""
    is_cancelled: bool = False
    """Somebody ended it."""
    reason: str = ""
    """Why it is pending, in the scheduler's words."""
    submitted: float | None = None
    command: str = ""
    """The job script; for a job without one, its command."""
    log: str = ""
    exit_code: int | None = None
    """As in a shell: 128+n for signal n."""
    restarts: int = 0
    """How often it was requeued."""

    @property
    def is_pending(self) -> bool:
        """Whether it waits in the queue, also after a requeue."""
        return self.phase == "pending"

    @property
    def is_running(self) -> bool:
        """Whether it is running or completing."""
        return self.phase == "running"

    @property
    def has_ended(self) -> bool:
        """Whether nothing of it is left."""
        return self.phase == "ended"

    def is_of(self, known: RunRecord) -> bool | None:
        """Whether this is the job of the run with that record: numbers are used again. None: nobody can tell.

        A job script lies in the directory of its run; a job without one was there when its run began, or soon after.
        """
        if known.submitted and self.command:
            return os.path.basename(os.path.dirname(self.command)) == known.run_id
        began = known.submitted or known.started
        if self.submitted is None or began is None:
            return None
        return self.submitted <= began + _SLACK_S


class Printed(NamedTuple):
    """What the launcher of a step printed about its end."""

    ended_by: str = ""
    """Why the scheduler ended it; empty: it did not."""
    lost: tuple[str, ...] = ()
    """Nodes that it lost."""
    is_withdrawn: bool = False
    """The job was cancelled before it began."""
    exited: tuple[tuple[str, int], ...] = ()
    """Host and exit code of each task that it saw fail."""
    is_cancelled: bool = False
    """Somebody ended the step before any of its tasks had ended."""


class Target(Protocol):
    """What `primus stop` ends: a process, a job, or a part of a job."""

    def is_running(self) -> bool:
        """Whether it is still running. Asks it to end, unless that has been done."""

    def name(self) -> str:
        """Its name and its status."""

    def kill_command(self) -> str:
        """The command that kills it."""


class Scheduler(Protocol):
    """One of them."""

    name: str
    """The name of its entry point, in plans and records; its runtime may have another name."""
    title: str
    """Its name in messages."""
    launch: str
    """The words after `primus` that start a task on `{nodes}` nodes: for examples and fixes."""
    logs: str
    """A pattern for the logs of its jobs in a run directory."""

    # plain attributes will do

    @property
    def families(self) -> tuple[str, ...]:
        """Prefixes of its variables, which describe the job and not the program in it."""

    @property
    def variables(self) -> Mapping[str, tuple[str, ...]]:
        """Its variables for NNODES, NODE_RANK and GPUS_PER_NODE; the first one that is set counts."""

    # of this process

    def started(self, environ: Mapping[str, str]) -> bool:
        """Whether it started this process on a node of a job."""

    def refuse(self, environ: Mapping[str, str]) -> None:
        """Raises `RequestError` if its variables describe a job that this process cannot belong to."""

    def numbers(self, environ: Mapping[str, str]) -> Mapping[str, str]:
        """`job_id`, `step_id`, `node`, as far as known; `restart`: how often the job was restarted."""

    def nodes(self, environ: Mapping[str, str]) -> str:
        """The nodes of the job, as it lists them; empty: it did not start this process."""

    def hosts(self, environ: Mapping[str, str]) -> Iterator[str]:
        """The names of the nodes in order. Raises `RequestError`, with the variable, if the list is malformed."""

    def port(self, environ: Mapping[str, str]) -> tuple[int, str] | None:
        """A port that all nodes compute alike without communication, and the reason; None: it has none."""

    def narrowed(self, cpus: int, environ: Mapping[str, str]) -> str:
        """Why this process may use only `cpus` CPUs of those that its job has on the node, and how it gets all of them;
        empty: it may use them all, or nobody knows.
        """

    # of jobs

    def waits(self, environ: Mapping[str, str]) -> str:
        """For what in its own job the step waits that this process is starting; empty: it does not, or nobody knows."""

    def look(self, number: str, environ: Mapping[str, str], cluster: str = "") -> Job | None:
        """One job; None: the scheduler does not answer."""

    def ask(self, numbers: Iterable[str], environ: Mapping[str, str], cluster: str = "") -> Mapping[str, Job]:
        """Many jobs by number, with one query; empty if the scheduler does not answer."""

    def job_of(self, directory: str) -> str:
        """The number of a job that the run in `directory` has and its record does not name; empty: there is none."""

    def target(self, directory: str, job: Job, known: RunRecord, host: HostRoot) -> Target | None:
        """What is to be ended where the run with that job and record is to end; None: it cannot be named."""

    # of a command that submits a job, or starts a step of one

    def version(self, program: str, environ: Mapping[str, str]) -> Mapping[str, str]:
        """The `flavour` and `version` that the command reports."""

    def submitted(self, lines: Iterable[str]) -> tuple[str, str]:
        """Id and cluster of the job, from the output of the command; empty: not printed."""

    def printed(self, text: str) -> Printed:
        """How the step ended, from the output of the command."""

    def without(self, command: Sequence[str], nodes: Sequence[str]) -> Sequence[str]:
        """The command of a step (`SchedulerStep.leaves_out`) that starts it on none of these nodes of the job."""

    def troubles(self, nodes: Sequence[str], environ: Mapping[str, str]) -> Mapping[str, str]:
        """The lost nodes, each with the reason that the scheduler reports."""

    def requeue(self, command: Sequence[str], environ: Mapping[str, str]) -> None:
        """Put the job back into the queue by `command`, which may end this process, too."""
