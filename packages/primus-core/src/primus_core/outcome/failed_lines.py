"""The lines that end a failed launch on the console: which rank failed first and why, or that the disk is full."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from errno import errorcode

from primus_core.journal import summary
from primus_core.outcome.closing import last_step, next_lines
from primus_core.outcome.failure import Failure, reason_in
from primus_core.plan.plan import METRICS, Plan, Step
from primus_core.runs.rundir import short
from primus_machine.files.atomic import FULL, append_line

__all__ = ["disk_full_failure", "disk_is_full", "failed", "keep_traceback", "log_of", "report"]

_PROBE_BYTES = 64 * 1024


def failed(
    plan: Plan, first: Failure | None, step: Step | None, code: int, *, why: str, launch_log: str, printed: str
) -> str:
    """The lines of a run that failed. `launch_log`: the file; `printed`: what the last step has printed there."""
    directory = plan.place.directory
    block = report(
        first,
        code,
        run_dir=short(directory),
        log=short(log_of(directory, first, step, launch_log)),
        step=step.name if step else "run",
        last_metrics=last_step(summary.read(f"{directory}/{METRICS}")),
        launch_log=printed,
        why=why,
        next_steps=next_lines(plan, "failed", is_refusal=bool(first and first.is_refusal)),
    )
    # That of rank 0 is on the console already.
    again = first is not None and step is not None and step.ranks > 1 and first.rank and first.traceback
    return (f"\n[rank {first.rank}] {first.traceback}\n" if first and again else "\n") + block


def keep_traceback(directory: str, rank: int, traceback: str) -> None:
    """Add the traceback of a rank to its log, which lacks it where the rank was ended while it hung."""
    path, text = f"{directory}/logs/rank_{rank}.log", traceback.rstrip()
    with suppress(OSError):  # a full disk is told of elsewhere
        with open(path, "rb") as log:
            log.seek(max(0, os.path.getsize(path) - _PROBE_BYTES))
            if not text or text.rpartition("\n")[2].encode() in log.read():
                return
        append_line(path, text)


def log_of(directory: str, first: Failure | None, step: Step | None, launch_log: str) -> str:
    """The log to read first, of those that exist: the failed rank's, the launcher's, the first rank's."""
    rank = first.rank if first and step and step.ranks else -1
    first_rank = step.first_rank if step else 0
    logs = [f"{directory}/logs/rank_{rank}.log", launch_log, f"{directory}/logs/rank_{first_rank}.log"]
    return next(filter(_holds_text, logs), next(filter(os.path.exists, logs), launch_log))


def _holds_text(path: str) -> bool:
    try:
        return os.path.getsize(path) > 0
    except OSError:
        return False


def report(
    failure: Failure | None,
    exit_code: int,
    *,
    run_dir: str,
    log: str,
    step: str,
    last_metrics: str = "",
    launch_log: str = "",
    why: str = "",
    next_steps: Sequence[str] = (),
) -> str:
    """The block that ends the console of a failed run, with the launcher's last line where no rank reported why."""
    rows = [("exit code", str(exit_code))]
    if why:
        rows.append(("what", why))
    elif not failure and (reason := reason_in(launch_log)):
        rows.append(("what", reason))
    if failure:
        at = time.strftime(" at %H:%M:%S", time.localtime(failure.time)) if failure.time else ""
        host = f" ({failure.host})" if failure.host else ""
        if failure.rank >= 0:
            rows.append(("first failure", f"rank {failure.rank} on node {failure.node_rank}{host}{at}"))
        rows.append(("what", failure.what.splitlines()[0] if failure.what else ""))
    if last_metrics:
        rows.append(("last step", last_metrics))
    rows += [("log", log), ("run", run_dir), *(("next", line) for line in next_steps)]
    body = "\n".join(f"  {name:<14}{value}" for name, value in rows)
    return f"primus: {step} failed\n{body}\n"


def disk_is_full(directory: str) -> str:
    """The error for a file system that takes no more below `directory`; empty: it does."""
    probe = f"{directory}/.space.{os.uname().nodename}.{os.getpid()}"
    try:
        descriptor = os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        try:
            os.write(descriptor, b"\0" * _PROBE_BYTES)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
            os.unlink(probe)
    except OSError as error:
        if error.errno in FULL:
            return f"{os.strerror(error.errno or 0)} ({errorcode[error.errno or 0]}) in {directory}"
    return ""


def disk_full_failure(first: Failure | None, code: int, full: str, node_rank: int) -> Failure:
    """The same failure, with the full disk in its reason: on one, a rank may have left no record of its own."""
    first = first or Failure(-1, code, "", node_rank=node_rank)
    return replace(first, what="; ".join(filter(None, (full, first.what))))
