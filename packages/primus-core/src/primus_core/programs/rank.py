"""Starts one rank: `python -m primus_core.programs.rank MODULE [ARGS]`, which torchrun or the supervisor runs.

It joins the rank's output to the supervisor, binds its CPUs, runs the module as `__main__`, and records why it
failed, with the time, so that the first failure of a job is known and not guessed. It must stay light: what it
costs is added to every start.
"""

from __future__ import annotations

import faulthandler
import os
import runpy
import signal
import sys
import time
from contextlib import suppress
from types import TracebackType

from primus_core import variables
from primus_core.plan.programs import FAILURES
from primus_machine.own_process.children import protect
from primus_machine.own_process.pending_exception import watch
from primus_machine.own_process.stacks import SIGNAL
from primus_machine.variables import RUN_DIR, STREAMS

__all__ = ["main"]


def _number(name: str) -> int:
    return int(os.environ.get(name) or 0)


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
    rank = _Rank()
    if rank.streams:
        rank.join_streams()
    if lists := os.environ.get(variables.NUMA_CPUS, ""):
        _bind(lists, _number("LOCAL_RANK"))
    faulthandler.register(SIGNAL)
    protect()
    if rank.streams:
        watch(rank.pending)
    sys.argv = argv
    try:
        runpy.run_module(argv[0], run_name="__main__", alter_sys=True)
    except SystemExit as stop:
        return rank.stopped(stop)
    except KeyboardInterrupt:
        rank.record(130, "KeyboardInterrupt", "SIGINT", "", is_exit=True)
        return 130
    except BaseException as error:  # whatever a user's program raises is recorded, then shown
        return rank.failed(error)
    rank.leave()
    return 0


class _Rank:
    """This one, and how it tells of its end."""

    def __init__(self) -> None:
        self.number = _number("RANK")
        self.streams = os.environ.pop(STREAMS, "")
        """The folder with the supervisor's pipes; empty: it has none."""

    def join_streams(self) -> None:
        """Print to the supervisor's pipes."""
        for descriptor, suffix in ((1, "out"), (2, "err")):
            pipe = os.open(f"{self.streams}/{self.number}.{suffix}", os.O_WRONLY)
            os.dup2(pipe, descriptor)
            os.close(pipe)
        with suppress(OSError), open(f"{self.streams}/{self.number}.pid", "w", encoding="ascii") as file:
            file.write(str(os.getpid()))  # for whoever looks at a rank that hangs
        # A pipe is no terminal: without this, Python would hold lines back until 8 KiB are full. With the `-u` of
        # torchrun, it would write each line in two pieces, its end by itself.
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(line_buffering=True, write_through=False)  # type: ignore[union-attr]  # a TextIOWrapper

    def stopped(self, stop: SystemExit) -> int:
        """Record an exit; its code."""
        if stop.code is None or isinstance(stop.code, int):
            code = (stop.code or 0) & 0xFF
            message = f"exit code {code}"
        else:
            code, message = 1, str(stop.code)
            print(message, file=sys.stderr)
        if code - 128 in (signal.SIGTERM, signal.SIGHUP):
            self.record(code, signal.Signals(code - 128).name, "this process was told to end", "", is_exit=True)
        elif code:
            self.record(code, "SystemExit", message, "", is_exit=isinstance(stop.code, int))
        else:
            self.leave()
        return code

    def leave(self) -> None:
        """Tell the supervisor that this rank ends with 0: the others may still need it."""
        if self.streams:
            with suppress(OSError), open(f"{self.streams}/{self.number}.left", "w", encoding="ascii"):
                pass

    def failed(self, error: BaseException) -> int:
        """Record and show an error; its exit code."""
        from primus_machine.errors import PrimusError, RequestError, as_line

        if isinstance(error, PrimusError):
            text, code = as_line(error), error.exit_code
        else:
            import traceback

            own = _without_launcher(error.__traceback__)
            text, code = "".join(traceback.format_exception(type(error), error, own)), 1
        sys.stderr.write(text)
        sys.stderr.flush()
        self.record(code, type(error).__name__, str(error), text, is_refusal=isinstance(error, RequestError))
        return code

    def pending(self, error: BaseException | None) -> None:
        """Tell the supervisor of an exception that waits for a block to end; None: it has gone on."""
        path = f"{self.streams}/{self.number}.pending"
        with suppress(OSError):
            if error is None:
                os.unlink(path)
                return
            import traceback

            from primus_machine.files.atomic import PRIVATE, write_atomically

            trace = "".join(traceback.format_exception(error))
            write_atomically(path, _record(self.number, 1, type(error).__name__, str(error), trace), mode=PRIVATE)

    def record(self, code: int, kind: str, message: str, trace: str, **flags: bool) -> None:
        """Say in a file why this rank failed."""
        run_dir = os.environ.get(RUN_DIR, "")
        if not run_dir or not os.path.isdir(run_dir):
            return
        from primus_machine.files.atomic import PRIVATE, write_atomically

        record = _record(self.number, code, kind, message, trace, **flags)
        # Beside its pipes the supervisor sees at once that this rank has failed, and also if the disk is full.
        for folder in filter(None, (f"{run_dir}/{FAILURES}", self.streams)):
            try:
                os.makedirs(folder, exist_ok=True)
                # a traceback holds lines of a person's code
                write_atomically(f"{folder}/rank_{self.number}.json", record, mode=PRIVATE)
            except OSError as error:
                sys.stderr.write(f"primus: cannot record the failure of rank {self.number}: {error.strerror}\n")


def _record(rank: int, code: int, kind: str, message: str, trace: str, **flags: bool) -> str:
    """Return why a rank failed, as JSON without secrets. `flags`: those of `outcome.failure.Failure`."""
    import json

    from primus_machine.secrets.redaction import redact, secret_values

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
        **flags,
    }
    return json.dumps(record, indent=1)


def _without_launcher(trace: TracebackType | None) -> TracebackType | None:
    """The traceback without the frames of this file and of runpy: they say nothing about the failure."""
    while trace and (trace.tb_frame.f_code.co_filename == __file__ or "runpy" in trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    return trace


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
