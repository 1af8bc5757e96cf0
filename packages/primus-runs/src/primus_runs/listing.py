"""The runs of a workspace, found and listed: thousands in a moment, so each costs one small file to read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, NamedTuple

from primus_core.contracts.scheduler import Job
from primus_core.journal.metrics import is_step
from primus_core.plan.plan import METRICS
from primus_core.runs.lookup import newest_first
from primus_machine.files import lease, plain_json, trust
from primus_machine.files.atomic import regular
from primus_machine.files.plain_json import number, whole
from primus_machine.host import HostRoot
from primus_runs.status import RunStatus, statuses

__all__ = ["Run", "find", "last_metrics", "of_status"]

_TAIL_BYTES = 8192
"""Some twenty lines of metrics."""


class Run(NamedTuple):
    """A run as a list shows it. None and empty: not known."""

    directory: str
    name: str
    started: float | None
    """Seconds since the epoch."""
    status: str
    """One of `saved.STATES`."""
    task: str = ""
    framework: str = ""
    model: str = ""
    duration_s: float | None = None
    last_step: int | None = None
    last_loss: float | None = None
    parent: str = ""
    """The run that this one replays, or whose hook or rank started it."""
    continues: str = ""
    """The run whose checkpoint it started from."""
    host: str = ""
    job_id: str = ""
    """Its scheduler's number for it."""
    reason: str = ""
    """Why its job waits, in the scheduler's words; why its status is unknown."""
    owner: str = ""
    """Whose directory it is, where it is another user's."""


def find(workspace: str, host: HostRoot | None = None) -> Iterator[Run]:
    """The runs in `workspace`, newest first. Each is read when its turn comes."""
    host = host or HostRoot()
    runs = [(f"{workspace}/{name}", known) for name, known in newest_first(workspace)]
    for (directory, _), stands in zip(runs, statuses(runs, host), strict=True):
        yield of_status(directory, stands, host)


def of_status(directory: str, stands: RunStatus, host: HostRoot) -> Run:
    """A run as a list shows it, from how it stands."""
    state, known, job = stands
    step, loss, started, ended = known.last_step, known.last_loss, known.started, known.ended
    if state in ("running", "lost", "started", "unwatched"):
        last = last_metrics(directory)
        step, loss = last.get("step"), last.get("loss")
        ended = host.now() if state == "running" else number(last.get("time"))
    return Run(
        directory,
        os.path.basename(directory),
        started,
        state,
        task=known.task,
        framework=known.framework,
        model=known.model,
        duration_s=ended - started if ended is not None and started is not None else None,
        last_step=whole(step),
        last_loss=number(loss),
        parent=known.parent.run_id if known.parent else "",
        continues=known.continues.run_id if known.continues else "",
        host=known.host,
        job_id=known.job_id or (job.number if job else ""),
        reason=_reason(state, directory, job, host),
        owner=_stranger(directory),
    )


def _reason(state: str, directory: str, job: Job | None, host: HostRoot) -> str:
    """Why its job waits, or why nobody knows here whether it runs."""
    held = lease.look(directory, host) if state == "started" else None
    unknown = f"unknown from here: {held.sign_of_life()}" if held else ""
    return unknown or (job.reason if job and state == "pending" else "")


def _stranger(directory: str) -> str:
    """The name of the account that a directory belongs to; empty: it is the person's own."""
    try:
        uid = os.stat(directory).st_uid
    except OSError:
        return ""
    return "" if uid == os.geteuid() else trust.account(uid)


def last_metrics(directory: str) -> dict[str, Any]:
    """The newest step in a run's `metrics.jsonl`; empty where there is none. Reads the file's end only."""
    for line in reversed(_tail(f"{directory}/{METRICS}").split(b"\n")[:-1]):
        try:
            row = plain_json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(row, dict) and whole(row.get("step")) is not None and is_step(row):
            return row
    return {}


def _tail(path: str) -> bytes:
    try:
        with open(path, "rb", opener=regular) as file:
            file.seek(max(os.fstat(file.fileno()).st_size - _TAIL_BYTES, 0))
            return file.read()
    except OSError:
        return b""
