"""Starts one rank: `python -m primus_core.programs.rank MODULE [ARGS]`, which torchrun or the supervisor runs.

It joins the rank's output to the supervisor, binds its CPUs, runs the module as `__main__`, and records why it
failed, with the time, so that the first failure of a job is known and not guessed. It must stay light: what it
costs is added to every start.
"""

from __future__ import annotations

import os
import runpy
import sys
import time
from types import TracebackType

from primus_core import variables
from primus_core.plan.programs import FAILURES

__all__ = ["main"]


def _number(name: str) -> int:
    return int(os.environ.get(name) or 0)


def _join_streams(folder: str, rank: int) -> None:
    for descriptor, suffix in ((1, "out"), (2, "err")):
        pipe = os.open(f"{folder}/{rank}.{suffix}", os.O_WRONLY)
        os.dup2(pipe, descriptor)
        os.close(pipe)
    # A pipe is no terminal: without this, Python would hold lines back until 8 KiB are full.
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # always a TextIOWrapper here


def _cpus(text: str) -> set[int]:
    """The CPUs in `0-15,32`."""
    cpus: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        cpus |= set(range(int(first), int(last or first) + 1))
    return cpus


def _bind(lists: str, local_rank: int) -> None:
    by_rank = lists.split(";")
    if local_rank < len(by_rank) and (cpus := _cpus(by_rank[local_rank])):
        os.sched_setaffinity(0, cpus)


def main(argv: list[str]) -> int:
    """Run `argv[0]` as a program with the rest as its arguments; its exit code."""
    rank = _number("RANK")
    if folder := os.environ.pop(variables.STREAMS, ""):
        _join_streams(folder, rank)
    if lists := os.environ.get(variables.NUMA_CPUS, ""):
        _bind(lists, _number("LOCAL_RANK"))
    sys.argv = argv
    try:
        runpy.run_module(argv[0], run_name="__main__", alter_sys=True)
    except SystemExit as stop:
        return _stopped(stop, rank)
    except KeyboardInterrupt:
        _record(rank, 130, "KeyboardInterrupt", "SIGINT", "")
        return 130
    except BaseException as error:  # whatever a user's program raises is recorded, then shown
        return _failed(error, rank)
    return 0


def _stopped(stop: SystemExit, rank: int) -> int:
    if stop.code is None or isinstance(stop.code, int):
        code = (stop.code or 0) & 0xFF
        message = f"exit code {code}"
    else:
        code, message = 1, str(stop.code)
        print(message, file=sys.stderr)
    if code:
        _record(rank, code, "SystemExit", message, "")
    return code


def _failed(error: BaseException, rank: int) -> int:
    from primus_core.errors import PrimusError

    if isinstance(error, PrimusError):
        text, code = f"primus: error: {error}\n", error.exit_code
    else:
        import traceback

        own = _without_launcher(error.__traceback__)
        text, code = "".join(traceback.format_exception(type(error), error, own)), 1
    sys.stderr.write(text)
    sys.stderr.flush()
    _record(rank, code, type(error).__name__, str(error), text)
    return code


def _without_launcher(trace: TracebackType | None) -> TracebackType | None:
    """The traceback without the frames of this file and of runpy: they say nothing about the failure."""
    while trace and (trace.tb_frame.f_code.co_filename == __file__ or "runpy" in trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    return trace


def _record(rank: int, code: int, kind: str, message: str, trace: str) -> None:
    run_dir = os.environ.get(variables.RUN_DIR, "")
    if not run_dir or not os.path.isdir(run_dir):
        return
    import json

    from primus_core.files.atomic import PRIVATE, write_atomically
    from primus_core.secrets.redaction import redact, secret_values

    values = secret_values(os.environ)
    record = {
        "time": time.time(),
        "rank": rank,
        "local_rank": _number("LOCAL_RANK"),
        "node_rank": _number("GROUP_RANK") or _number("NODE_RANK"),
        "host": os.uname().nodename,
        "pid": os.getpid(),
        "exit_code": code,
        "type": kind,
        "message": redact(message, values),
        "traceback": redact(trace, values),
    }
    folder = f"{run_dir}/{FAILURES}"
    try:
        os.makedirs(folder, exist_ok=True)
        # a traceback holds lines of a person's code
        write_atomically(f"{folder}/rank_{rank}.json", json.dumps(record, indent=1), mode=PRIVATE)
    except OSError as error:  # the exit code is the rank's own, also on a full disk
        sys.stderr.write(f"primus: the failure of rank {rank} could not be recorded: {error.strerror}\n")


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
