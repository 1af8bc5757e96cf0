"""Stop a running job, wherever it was started from."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import time
from collections.abc import Sequence

from primus_core.contracts import schedulers
from primus_core.contracts.scheduler import Target
from primus_core.errors import MachineError
from primus_core.files import plain_json, trust
from primus_core.files.atomic import write_atomically
from primus_core.host import HostRoot
from primus_core.request.arguments import Parser, parse_segment
from primus_core.runs.lease import FOLDER, look, process_start
from primus_core.runs.listing import resolve, workspace
from primus_core.runs.saved import GOING, metadata, process_here, state
from primus_core.runs.status import RunStatus, status_of

__all__ = ["parser", "run"]

_POLL_S = 0.1
_SILENT_S = 2.0
"""Who waits for longer hears what for."""
_EPILOG = """examples:
  primus stop latest
  primus stop quickstart --timeout 120

Its ranks get SIGTERM, and SIGKILL after the run's own grace period. A job that waits is withdrawn.
RUN is a path, a run's name, an experiment's name (its newest run), or `latest`."""


def parser() -> Parser:
    """The command's parser."""
    parser = Parser(prog="primus stop", epilog=_EPILOG, description="Stop a running job.")
    parser.add_argument("run", metavar="RUN", help="a path, a run's or an experiment's name, or latest")
    parser.add_argument(
        "--timeout", type=float, default=60.0, metavar="SECONDS", help="how long to wait for its end (default: 60)"
    )
    parser.add_argument(
        "--workspace", metavar="DIR", help="where runs are kept (default: that of primus.yaml, or output)"
    )
    return parser


def run(words: Sequence[str], layer: str) -> int:
    """End it, and wait for the end. A run that has ended is no error: it may just have done so."""
    args = parse_segment(parser(), words)
    host = HostRoot()
    directory = resolve(args.run, workspace(args.workspace, host, layer), host)
    why = _doubt(directory, host)
    if why and os.geteuid():
        raise trust.refused(directory, why, "the run")
    stands = status_of(directory, host)
    if stands.state not in GOING:
        sys.stderr.write(f"primus: {directory} does not run: it is {stands.state}\n")
        return 0
    _wait(directory, _target(directory, stands, host, why), args.timeout)
    if not why:
        _say_so(directory)
    sys.stderr.write(f"primus: {directory}: {state(directory, host)}\n")
    return 0


def _doubt(directory: str, host: HostRoot) -> str:
    """Why what the run says of itself is not believed. An operator, root, may still end a process that is the run's."""
    believed = trust.of(host.environ)
    return next(filter(None, (believed.doubt(f"{directory}/{name}") for name in ("", "metadata.json", FOLDER))), "")


def _wait(directory: str, target: Target, timeout_s: float) -> None:
    began = time.monotonic()
    said = False
    while target.goes_on():
        waited = time.monotonic() - began
        if waited > timeout_s:
            raise MachineError(
                f"{directory} did not end in {timeout_s:g} s", why=f"{target.name()} is still there",
                fix=f"wait, or end it by force: {target.by_force()}",
            )  # fmt: skip
        if waited > _SILENT_S and not said:
            sys.stderr.write(f"primus: waiting for {target.name()} to end\n")
            said = True
        time.sleep(_POLL_S)


def _target(directory: str, stands: RunStatus, host: HostRoot, why: str) -> Target:
    if pid := process_here(directory, host):
        return _Process(directory, pid, host)
    if why:
        raise trust.refused(directory, why, "the run")
    if not stands.job:
        raise _out_of_reach(directory, stands, host)
    scheduler = schedulers.of_run(stands.known)
    target = scheduler.target(directory, stands.job, stands.known, host) if scheduler else None
    if not target:
        raise _out_of_reach(directory, stands, host)
    if stands.job.is_of(stands.known) is None:
        raise MachineError(
            f"whether job {stands.job.number} is still that of {directory} is not certain",
            why="numbers of jobs are used again, and the scheduler does not say what this one runs",
            fix=f"look at it; if it is: {target.by_force()}",
        )
    return target


def _out_of_reach(directory: str, stands: RunStatus, host: HostRoot) -> MachineError:
    where, number = stands.known.get("host"), stands.known.get("job_id")
    if stands.state == "submitted" and not number:
        return MachineError(
            f"{directory} was submitted, and nobody said as which job",
            fix="look for it in the queue, by its name, and cancel it there",
        )
    if stands.state == "submitted":
        return MachineError(
            f"{directory} was submitted as job {number}, and {schedulers.title_of(stands.known)} does not answer here",
            fix=f"where it does: primus stop {shlex.quote(os.path.abspath(directory))}",
        )
    held = look(directory, host)
    if where == host.hostname() and (not held or held.here):
        return MachineError(
            f"{directory} has no lease that proves which process is its own",
            why=f"its metadata names process {stands.known.get('pid')}, which may be another one by now",
            fix=f"look at it; if it is the run's: kill {stands.known.get('pid')}",
        )
    if where == host.hostname():
        return MachineError(
            f"{directory} runs in another container or process namespace of {where}",
            why="its process cannot be signalled from here",
            fix=f"where it was started: primus stop {shlex.quote(os.path.abspath(directory))}",
        )
    there = shlex.join(["ssh", str(where), shlex.join(["primus", "stop", os.path.abspath(directory)])])
    return MachineError(f"{directory} runs on {where}, and this is {host.hostname()}", fix=there)


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
            user = metadata(directory).get("user")
            raise MachineError(f"{directory} is a run of {user}", fix="ask them, or become them") from None

    def goes_on(self) -> bool:
        return self.began >= 0 and process_start(self.pid, self.host) == self.began

    def name(self) -> str:
        return f"process {self.pid}"

    def by_force(self) -> str:
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


def _say_so(directory: str) -> None:
    """Write the end of a run down that had nobody to do so: it waited, or had just begun."""
    known = metadata(directory)
    if known.get("status") in ("submitted", "preparing", "started"):
        ended = {**known, "status": "interrupted", "ended": time.time()}
        try:
            write_atomically(f"{directory}/metadata.json", plain_json.dumps(ended, indent=1))
        except OSError as error:  # an operator ended somebody's job
            sys.stderr.write(f"primus: note: its metadata.json could not be written: {error.strerror}\n")
