"""Stop a running job, wherever it was started from."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import replace

from primus_core.contracts import schedulers
from primus_core.contracts.scheduler import Target
from primus_core.journal import record
from primus_core.request.arguments import Parser, parse_segment
from primus_core.runs.lookup import resolve, workspace
from primus_core.runs.state import ENDED, GOING, process_here, state
from primus_machine.errors import MachineError, PrimusError
from primus_machine.files import trust
from primus_machine.files.lease import FOLDER, look, process_start
from primus_machine.host import HostRoot
from primus_machine.processes import ranks_of, send
from primus_runs.status import RunStatus, status_of

__all__ = ["parser", "run"]

_POLL_S = 0.1
_SILENT_S = 2.0
"""Who waits for longer hears what for."""
_EPILOG = """examples:
  primus stop latest
  primus stop quickstart --timeout 120

The ranks get SIGTERM, and SIGKILL after the grace period of the run. A pending job is cancelled.
RUN is a path, a run's name, an experiment's name or a job's number (its newest run), or `latest`."""


def parser() -> Parser:
    """The command's parser."""
    parser = Parser(prog="primus stop", epilog=_EPILOG, description="Stop a running job.")
    parser.add_argument("run", metavar="RUN", help="a path, the name of a run or experiment, or latest")
    parser.add_argument(
        "--timeout",
        type=float,
        default=60.0,
        metavar="SECONDS",
        help="give up after SECONDS if the run has not ended (default: 60)",
    )
    parser.add_argument(
        "--workspace", metavar="DIR", help="the folder of the runs (default: from primus.yaml, or output)"
    )
    return parser


def run(words: Sequence[str], layer: str) -> int:
    """End it, and wait for the end. A run that has ended is no error: it may just have done so.

    Raises:
        PrimusError: whether it is still running cannot be found out.
        MachineError: it cannot be reached from here, or does not end in time.
    """
    args = parse_segment(parser(), words)
    host = HostRoot()
    directory = resolve(args.run, workspace(args.workspace, host, layer), host)
    why = _doubt(directory, host)
    if why and os.geteuid():
        raise trust.refused(directory, why, "the run")
    status = status_of(directory, host)
    if status.state not in GOING:
        if not _is_over(status, host):
            raise _not_known(directory, status)
        # Primus was killed, and perhaps its keeper, too
        if status.state == "lost" and not why and (ranks := ranks_of(directory)):
            _wait(directory, _Ranks(directory, ranks), args.timeout)
        sys.stderr.write(f"primus: {directory} is not running: its status is {status.state}\n")
        return 0
    _wait(directory, _target(directory, status, host, why), args.timeout)
    if not why:
        _record_end(directory)
    sys.stderr.write(f"primus: {directory}: {state(directory, host)}\n")
    return 0


def _is_over(status: RunStatus, host: HostRoot) -> bool:
    """Whether a run that is not known to go on has certainly ended: it says so, its scheduler does, or this host."""
    if status.state in ENDED:
        return True
    if status.state not in ("lost", "incomplete"):
        return False
    return status.job.has_ended if status.job else status.known.host == host.hostname()


def _not_known(directory: str, status: RunStatus) -> PrimusError:
    where = f" on {status.known.host}" if status.known.host else ""
    return PrimusError(
        f"whether {directory} is still running is not known: its status is {status.state}",
        why="neither its record nor a scheduler shows how it ended",
        fix=f"look for its processes{where}, or for its job in the queue",
    )


def _doubt(directory: str, host: HostRoot) -> str:
    """Why what the run says of itself is not believed. An operator, root, may still end a process that is the run's."""
    trusted = trust.of(host.environ)
    return next(filter(None, (trusted.doubt(f"{directory}/{name}") for name in ("", record.FILE, FOLDER))), "")


def _wait(directory: str, target: Target, timeout_s: float) -> None:
    began = time.monotonic()
    reported = False
    while target.is_running():
        waited = time.monotonic() - began
        if waited > timeout_s:
            raise MachineError(
                f"{directory} did not end in {timeout_s:g} s", why=f"{target.name()} is still running",
                fix=f"wait, or kill it:  {target.kill_command()}",
            )  # fmt: skip
        if waited > _SILENT_S and not reported:
            sys.stderr.write(f"primus: waiting for {target.name()} to end\n")
            reported = True
        time.sleep(_POLL_S)


def _target(directory: str, status: RunStatus, host: HostRoot, why: str) -> Target:
    if pid := process_here(directory, host):
        return _Process(directory, pid, host)
    if why:
        raise trust.refused(directory, why, "the run")
    if not status.job:
        raise _out_of_reach(directory, status, host)
    scheduler = schedulers.of_run(status.known)
    target = scheduler.target(directory, status.job, status.known, host) if scheduler else None
    if not target:
        raise _out_of_reach(directory, status, host)
    if status.job.is_of(status.known) is None:
        raise PrimusError(
            f"whether job {status.job.number} is still that of {directory} is uncertain",
            why="job ids are reused, and the scheduler does not report what this job runs",
            fix=f"check it; if it is:  {target.kill_command()}",
        )
    return target


def _out_of_reach(directory: str, status: RunStatus, host: HostRoot) -> PrimusError:
    where, number = status.known.host, status.known.job_id
    if status.state == "submitted" and not number:
        return PrimusError(
            f"{directory} was submitted, but its job id is unknown",
            fix="find it in the queue by its name, and cancel it there",
        )
    if status.state == "submitted":
        return PrimusError(
            f"{directory} was submitted as job {number}, and {schedulers.title_of(status.known)} does not answer here",
            fix=f"where it does: primus stop {shlex.quote(os.path.abspath(directory))}",
        )
    held = look(directory, host)
    if where == host.hostname() and (not held or held.here):
        return MachineError(
            f"{directory} has no lease that proves which process is its own",
            why=f"its metadata names process {status.known.pid}, which may be another one by now",
            fix=f"check it; if it belongs to the run: kill {status.known.pid}",
        )
    if where == host.hostname():
        return MachineError(
            f"{directory} runs in another container or process namespace of {where}",
            why="its process cannot be signalled from this one",
            fix=f"where it was started: primus stop {shlex.quote(os.path.abspath(directory))}",
        )
    there = shlex.join(["ssh", str(where), shlex.join(["primus", "stop", os.path.abspath(directory)])])
    return MachineError(f"{directory} runs on {where}, and this is {host.hostname()}", fix=there)


class _Ranks:
    """Those of a run that has lost its Primus."""

    def __init__(self, directory: str, ranks: Sequence[int]) -> None:
        self.directory, self.ranks = directory, ranks
        for pid in ranks:
            send(pid, signal.SIGTERM)

    def is_running(self) -> bool:
        self.ranks = ranks_of(self.directory)
        return bool(self.ranks)

    def name(self) -> str:
        return f"its ranks, which have lost their Primus: {' '.join(map(str, self.ranks))}"

    def kill_command(self) -> str:
        return f"kill -9 {' '.join(map(str, self.ranks))}"


class _Process:
    """The run's own process, on this host."""

    def __init__(self, directory: str, pid: int, host: HostRoot) -> None:
        self.pid, self.host, self.began = pid, host, -1
        try:
            handle = _handle(pid)
            if pid == process_here(directory, host):  # still: the handle is of this process, whoever gets its number
                self.began = process_start(pid, host)
                _terminate(pid, handle)
        except ProcessLookupError:  # it ended in this very moment
            pass
        except PermissionError:
            user = record.read(directory).user
            raise MachineError(
                f"{directory} is a run of {user}", fix="ask this user, or stop it as this user"
            ) from None

    def is_running(self) -> bool:
        return self.began >= 0 and process_start(self.pid, self.host) == self.began

    def name(self) -> str:
        return f"process {self.pid}"

    def kill_command(self) -> str:
        return f"kill -9 {self.pid}"


def _handle(pid: int) -> int:
    """A descriptor that stands for the process; -1: the kernel (before Linux 5.3) has none."""
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        raise
    except OSError:
        return -1


def _terminate(pid: int, handle: int) -> None:
    if handle < 0:
        os.kill(pid, signal.SIGTERM)
        return
    signal.pidfd_send_signal(handle, signal.SIGTERM)
    os.close(handle)


def _record_end(directory: str) -> None:
    """Write the end of a run down that had nobody to do so: it waited, or had just begun."""
    known = record.read(directory)
    if known.status in ("submitted", "preparing", "started"):
        try:
            record.write(directory, replace(known, status="interrupted", ended=time.time()))
        except OSError as error:  # an operator ended somebody's job
            sys.stderr.write(f"primus: note: metadata.json of the run could not be written: {error.strerror}\n")
