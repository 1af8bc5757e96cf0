"""Worker processes: each does one task after the other. None outlives the process that started it."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from types import TracebackType
from typing import Any, NamedTuple, Self

from primus_core.errors import MachineError, PrimusError
from primus_data.quality import library, tasks
from primus_data.quality.stages import Stage
from primus_data.quality.tasks import Job
from primus_machine.files.atomic import FULL
from primus_machine.processes import end_with_parent

__all__ = ["Workers"]


class _Worker(NamedTuple):
    process: ForkProcess
    pipe: Connection


class Workers:
    """So many processes. The caller stays without the libraries, so that a fork is cheap and has no threads to lose."""

    def __init__(self, job: Job, count: int) -> None:
        self.job, self.count = job, count
        self.workers: list[_Worker] = []

    def __enter__(self) -> Self:
        context = multiprocessing.get_context("fork")
        for _ in range(self.count):
            here, there = context.Pipe()
            pipes = [worker.pipe for worker in self.workers] + [here]
            process = context.Process(target=_serve, args=(self.job, there, pipes, os.getpid()), daemon=True)
            process.start()
            there.close()
            self.workers.append(_Worker(process, here))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for worker in self.workers:
            worker.pipe.close()  # a worker that waits for a task ends
            if kind is not None:
                worker.process.kill()  # it may be in the middle of one
        for worker in self.workers:
            worker.process.join()

    def results(self, stage: Stage, numbers: Sequence[int]) -> Iterator[tuple[int, dict[str, Any]]]:
        """Do these tasks of a stage, in any order.

        Raises:
            PrimusError: a task failed, or a worker was killed.
        """
        left, busy = list(reversed(numbers)), {}
        for worker in self.workers:
            if left:
                busy[worker.pipe] = _give(worker, stage, left.pop())
        while busy:
            ready = wait(list(busy))
            for pipe in [one for one in busy if one in ready]:
                worker, number = busy.pop(pipe)
                yield number, _answer(worker)
                if left:
                    busy[worker.pipe] = _give(worker, stage, left.pop())


def _give(worker: _Worker, stage: Stage, number: int) -> tuple[_Worker, int]:
    try:
        worker.pipe.send((stage, number))
    except OSError:
        raise _ended(worker) from None
    return worker, number


def _answer(worker: _Worker) -> dict[str, Any]:
    try:
        found = worker.pipe.recv()
    except (EOFError, OSError):
        raise _ended(worker) from None
    if isinstance(found, PrimusError):
        raise found
    answer: dict[str, Any] = found
    return answer


def _ended(worker: _Worker) -> MachineError:
    worker.process.join()
    code = worker.process.exitcode or 0
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    why = "the system kills the largest process if memory runs out" if code == -signal.SIGKILL else ""
    fix = "run the same command again: it continues. With less memory, use fewer workers (--workers)"
    return MachineError(f"a worker process {how}", why=why, fix=fix)


def _serve(job: Job, pipe: Connection, others: Sequence[Connection], parent: int) -> None:
    """A worker's life."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all; the parent decides
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    end_with_parent()
    if os.getppid() != parent:
        return
    for other in others:
        other.close()  # or the worker of that pipe would never see it end
    _stay_offline()
    while True:
        try:
            stage, number = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send(_done(job, stage, number))
        except BrokenPipeError:
            return


def _stay_offline() -> None:
    """No library asks the network for anything: all that a step needs is named in the pipeline, or installed."""
    os.environ.update(HF_HUB_OFFLINE="1", HF_HUB_DISABLE_TELEMETRY="1", DO_NOT_TRACK="1", TQDM_DISABLE="1")


def _done(job: Job, stage: Stage, number: int) -> dict[str, Any] | PrimusError:
    try:
        library.prepare()
        return tasks.do(job, stage, number)
    except PrimusError as error:
        return error
    except MemoryError:
        return MachineError("memory is full", fix="use fewer workers (--workers)")
    except OSError as error:
        name = error.filename or job.folder
        if error.errno in FULL:
            return MachineError(
                f"no space left on the disk of '{name}'", fix="free some; the same command then continues"
            )
        return MachineError(f"'{name}' cannot be read or written", why=str(error.strerror or error))
