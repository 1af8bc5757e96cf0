"""What Acme Grid says to Primus of its nodes and jobs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

from acme_grid import grid
from primus_core.contracts.scheduler import FORGOTTEN, Job, Phase, Printed, Scheduler
from primus_core.journal.record import RunRecord
from primus_machine.host import HostRoot

_PHASES: Mapping[str, Phase] = {"QUEUED": "pending", "ACTIVE": "running"}


class AcmeGrid:
    """Scheduler `acme-grid`."""

    name = "acme-grid"
    title = "Acme Grid"
    launch = "grid --nodes {nodes}"
    families = ("ACME_",)
    logs = "logs/grid_*.log"
    variables: Mapping[str, tuple[str, ...]] = {
        "NNODES": ("ACME_NODES",),
        "NODE_RANK": ("ACME_NODE",),
        "GPUS_PER_NODE": ("ACME_SLOTS",),
    }

    def started(self, environ: Mapping[str, str]) -> bool:
        """A job's script has no ACME_NODE."""
        return {"ACME_JOB", "ACME_NODE"} <= environ.keys()

    def refuse(self, environ: Mapping[str, str]) -> None:
        """Its variables are never half there."""

    def numbers(self, environ: Mapping[str, str]) -> Mapping[str, str]:
        known = {"job_id": environ.get("ACME_JOB", ""), "restart": environ.get("ACME_RESTARTS", "")}
        if self.started(environ):
            known["node"] = [*self.hosts(environ)][int(environ["ACME_NODE"])]
        return {name: value for name, value in known.items() if value}

    def nodes(self, environ: Mapping[str, str]) -> str:
        return environ.get("ACME_HOSTS", "") if self.started(environ) else ""

    def hosts(self, environ: Mapping[str, str]) -> Iterator[str]:
        return iter(self.nodes(environ).split(","))

    def port(self, environ: Mapping[str, str]) -> tuple[int, str] | None:
        if not self.started(environ):
            return None
        job = f"{environ.get('ACME_GRID')} {environ['ACME_JOB']}"
        return 20000 + crc32(job.encode()) % 10000, "from the name of Acme Grid's job"

    def look(self, number: str, environ: Mapping[str, str], cluster: str = "") -> Job | None:
        return self.ask([number], environ, cluster).get(number)

    def narrowed(self, cpus: int, environ: Mapping[str, str]) -> str:
        """A node has all its CPUs."""
        return ""

    def waits(self, environ: Mapping[str, str]) -> str:
        """Steps share their nodes."""
        return ""

    def ask(self, numbers: Iterable[str], environ: Mapping[str, str], cluster: str = "") -> Mapping[str, Job]:
        place = Path(environ.get("ACME_GRID", ""))
        return {number: _job(number, grid.read(place, number)) for number in numbers} if place.name else {}

    def job_of(self, directory: str) -> str:
        """What `acme-run` started said so itself."""
        return ""

    def target(self, directory: str, job: Job, known: RunRecord, host: HostRoot) -> Target:
        return Target(self, job, host.environ)

    def version(self, program: str, environ: Mapping[str, str]) -> Mapping[str, str]:
        return {"flavour": "acme-grid", "version": "1.4"}

    def submitted(self, lines: Iterable[str]) -> tuple[str, str]:
        found = re.search("^acme: job (g[0-9]+) is queued$", "\n".join(lines), re.M)
        return (found[1] if found else "", "")

    def printed(self, text: str) -> Printed:
        """What `acme-run` prints."""
        exited = re.findall("^acme-run: error: (.+) ended with ([0-9]+)$", text, re.M)
        return Printed(
            lost=tuple(re.findall("^acme-run: error: node (.+) is lost$", text, re.M)),
            exited=tuple((host, int(code)) for host, code in exited),
        )

    def without(self, command: Sequence[str], nodes: Sequence[str]) -> Sequence[str]:
        """`acme-run step` has the options; the program takes none."""
        program, step, *rest = command
        return (program, step, f"--exclude={','.join(nodes)}", *rest)

    def troubles(self, nodes: Sequence[str], environ: Mapping[str, str]) -> Mapping[str, str]:
        return dict.fromkeys(grid.down(Path(environ["ACME_GRID"])) & set(nodes), "down")

    def requeue(self, command: Sequence[str], environ: Mapping[str, str]) -> None:
        """`acme-requeue JOB`: the queue takes it once its script has ended."""
        (Path(environ["ACME_GRID"]) / "jobs" / command[-1] / "requeue").touch()


def _job(number: str, known: Mapping[str, Any] | None) -> Job:
    if not known:
        return Job(number, FORGOTTEN)
    state = known["state"]
    return Job(
        number,
        state,
        _PHASES.get(state, "ended"),
        "completed" if state == "DONE" else "interrupted" if state == "CANCELLED" else "",
        is_cancelled=state == "CANCELLED",
        reason="the grid is on hold" if state == "QUEUED" else "",
        submitted=known["created"],
        command=known["script"],
        exit_code=known.get("exit_code"),
        restarts=known["restarts"],
    )


class Target:
    """A job that `primus stop` ends."""

    def __init__(self, scheduler: AcmeGrid, job: Job, environ: Mapping[str, str]) -> None:
        self.scheduler, self.job, self.environ = scheduler, job, environ
        grid.end(Path(environ["ACME_GRID"]), job.number)

    def is_running(self) -> bool:
        self.job = self.scheduler.look(self.job.number, self.environ) or self.job
        return not self.job.has_ended

    def name(self) -> str:
        return f"job {self.job.number} ({self.job.state})"

    def kill_command(self) -> str:
        return f"acme-cancel {self.job.number}"


ACME_GRID: Scheduler = AcmeGrid()
