"""What a scheduler is: what it says of this process, of jobs, and of a step that ended. Entry-point group
`primus.schedulers`: the entry point names an instance.

A scheduler that does not answer is no error: its methods say that nothing is known, within a few seconds. The number
of a job is what its scheduler calls it: letters, digits and `_.:@[]-`, of which the first is a letter or a digit.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

if TYPE_CHECKING:
    from primus_core.host import HostRoot

__all__ = ["FORGOTTEN", "Job", "Phase", "Printed", "Scheduler", "Target"]

Phase = Literal["waits", "goes on", "over"]
FORGOTTEN = "FORGOTTEN"
"""The state of a job that its scheduler does not know: it ended some minutes ago or more, or there never was one."""
_SLACK_S = 300
"""A job was submitted so much after its run began only if it is another one, whatever clocks were set."""


class Job(NamedTuple):
    """A job as its scheduler tells of it. Empty and None: it does not say."""

    number: str
    state: str
    """In the scheduler's own word, as people know it."""
    phase: Phase = "over"
    """`waits`: it has not begun, or will begin again; `goes on`: it runs, or its last processes are ending."""
    outcome: Literal["", "completed", "interrupted"] = ""
    """Of one that is over, where its state says so."""
    ended_by: str = ""
    """Why the scheduler ended it: its time limit, a preemption; empty: it did not."""
    is_cancelled: bool = False
    """Somebody ended it."""
    reason: str = ""
    """Why it waits, in the scheduler's words."""
    submitted: float | None = None
    command: str = ""
    """The job script; of a job without one, what it starts."""
    log: str = ""
    exit_code: int | None = None
    """As a shell has it: 128+n for signal n."""
    restarts: int = 0
    """How often it was put back into the queue."""

    @property
    def waits(self) -> bool:
        """Whether it has not begun, or will begin again."""
        return self.phase == "waits"

    @property
    def goes_on(self) -> bool:
        """Whether it runs, or its last processes are ending."""
        return self.phase == "goes on"

    @property
    def is_over(self) -> bool:
        """Whether nothing of it is left."""
        return self.phase == "over"

    def is_of(self, known: Mapping[str, Any]) -> bool | None:
        """Whether this is the job of the run with that metadata: numbers are used again. None: nobody can tell.

        A job script lies in the directory of its run; a job without one was there when its run began, or soon after.
        """
        if known.get("submitted") and self.command:
            return os.path.basename(os.path.dirname(self.command)) == known.get("run_id")
        began = known.get("submitted") or known.get("started")
        if self.submitted is None or not isinstance(began, int | float):
            return None
        return self.submitted <= began + _SLACK_S


class Printed(NamedTuple):
    """What the launcher of a step printed of its end."""

    ended_by: str = ""
    """Why the scheduler ended it; empty: it did not."""
    lost: tuple[str, ...] = ()
    """Nodes that it lost."""
    is_withdrawn: bool = False
    """The job was cancelled before it began."""
    exited: tuple[tuple[str, int], ...] = ()
    """Host and exit code of each task that it saw fail."""


class Target(Protocol):
    """What `primus stop` ends: a process, a job, a part of one."""

    def goes_on(self) -> bool:
        """Whether it does. It is told to end, if that has not been done."""

    def name(self) -> str:
        """What it is, and how it stands."""

    def by_force(self) -> str:
        """The command that ends it at once."""


class Scheduler(Protocol):
    """One of them."""

    name: str
    """As its entry point is called, and as plans and records have it; its runtime may have another name."""
    title: str
    """As people call it, in messages."""
    launch: str
    """How a command begins that starts a task on `{nodes}` nodes, behind `primus`: for examples and fixes."""
    logs: str
    """A pattern for the logs of jobs, in a run directory."""

    # plain attributes will do

    @property
    def families(self) -> tuple[str, ...]:
        """Beginnings of the names of its variables: they belong to a job, and not to what runs in it."""

    @property
    def says(self) -> Mapping[str, tuple[str, ...]]:
        """The variables by which it says NNODES, NODE_RANK and GPUS_PER_NODE, the first that is set counts."""

    # of this process

    def started(self, environ: Mapping[str, str]) -> bool:
        """Whether it started this process on a node of a job."""

    def refuse(self, environ: Mapping[str, str]) -> None:
        """Raises `RequestError` where its variables speak of a job that this process cannot belong to."""

    def numbers(self, environ: Mapping[str, str]) -> Mapping[str, str]:
        """`job_id`, `step_id`, `node`, as far as it says them; `restart`: how often the job began again."""

    def nodes(self, environ: Mapping[str, str]) -> str:
        """The nodes of the job, as it lists them; empty: it did not start this process."""

    def hosts(self, environ: Mapping[str, str]) -> Iterator[str]:
        """Their names, one after the other. Raises `RequestError`, with the variable, where that is no such list."""

    def port(self, environ: Mapping[str, str]) -> tuple[int, str] | None:
        """A port on which all nodes agree without a word between them, and why it is that one; None: it has none."""

    # of jobs

    def look(self, number: str, environ: Mapping[str, str], cluster: str = "") -> Job | None:
        """One job; None: nobody answers."""

    def ask(self, numbers: Iterable[str], environ: Mapping[str, str], cluster: str = "") -> Mapping[str, Job]:
        """Many jobs by number, with one question; nothing where nobody answers."""

    def job_of(self, directory: str) -> str:
        """The number of a job that the run in `directory` has and its metadata does not name; empty: there is none."""

    def target(self, directory: str, job: Job, known: Mapping[str, Any], host: HostRoot) -> Target | None:
        """What is to be ended where the run with that job and metadata is to end; None: it cannot be named."""

    # of a command that submits a job, or starts a step of one

    def version(self, program: str, environ: Mapping[str, str]) -> Mapping[str, str]:
        """What the command says of itself: `flavour` and `version`."""

    def submitted(self, lines: Iterable[str]) -> tuple[str, str]:
        """Number and cluster of the job, from what the command printed; empty: it does not say."""

    def printed(self, text: str) -> Printed:
        """What the command's output says of the step's end."""

    def troubles(self, nodes: Sequence[str], environ: Mapping[str, str]) -> Mapping[str, str]:
        """Those of the nodes that it takes for lost, and what it says of them."""

    def requeue(self, command: Sequence[str], environ: Mapping[str, str]) -> None:
        """Put the job back into the queue by `command`, which may end this process, too."""
