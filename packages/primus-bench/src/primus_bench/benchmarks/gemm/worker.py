"""The worker of `bench gemm`, one for each device: check each engine's result, then measure it, all devices at once.

It runs alone too: `python -m primus_bench.benchmarks.gemm.worker -M 4096 --dtype bf16`
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from primus_bench.benchmarks.gemm import hipblaslt, options, report
from primus_bench.benchmarks.gemm.accuracy import Accuracy, check
from primus_bench.benchmarks.gemm.engines import Multiplication, engine
from primus_bench.benchmarks.gemm.operands import Rotation, sets_for, torch_dtype
from primus_bench.benchmarks.gemm.options import Settings
from primus_bench.benchmarks.gemm.problem import Problem
from primus_bench.benchmarks.gemm.report import Result
from primus_bench.measure.device import Device
from primus_bench.measure.progress import logged
from primus_bench.measure.ranks import Ranks
from primus_bench.measure.start import start
from primus_bench.measure.together import gathered, timed
from primus_bench.options import parsed
from primus_bench.report.files import prepare
from primus_bench.report.outcome import publish
from primus_core.errors import MachineError
from primus_machine.host import HostRoot

__all__ = ["main", "stale"]

_WARM_UP_LIMITS_S = (2.0, 10.0)
_FIX = "check the device (primus direct -- preflight), then the versions of torch, triton and the driver"

Build = Callable[[str, Problem, Device], Multiplication]


def main(argv: Sequence[str], build: Build = engine) -> int:
    """Measure what `argv` asks for; rank 0 prints and writes the result."""
    settings = options.settle(parsed("gemm", options.declare, argv), torch.cuda.is_available())
    ranks, device = start(settings.device)
    device = _shared(device, settings, ranks)
    if ranks.place.rank == 0:
        prepare(settings.outputs)
    with logged(here=ranks.place.rank == 0) as progress:
        worker = _Worker(settings, device, ranks, progress, build)
        for problem, engines in settings.measured():
            worker.measure(problem, engines)
    if ranks.place.rank == 0:
        cases = [report.case(result, device, ranks.hosts) for result in worker.results]
        found = report.document(settings, device, ranks.hosts, cases, worker.notes, worker.versions)
        publish(found, report.sheet(found, settings.problems), settings.outputs, json=settings.json)
    return 0


def _shared(device: Device, settings: Settings, ranks: Ranks) -> Device:
    """This rank's device, with the memory that the rank with the least has.

    Raises:
        MachineError: it cannot multiply one of the types.
    """
    for dtype in {problem.dtype for problem in settings.problems}:
        torch_dtype(dtype, device.fp8)
    share = ranks.place.local_world if device.kind == "cpu" else 1
    return replace(device, memory_bytes=min(ranks.exchange(device.memory_bytes // share)))


def stale(rotation: Rotation, iterations: int) -> str:
    """What is wrong with the rotation after so many iterations since `Rotation.forget`; empty: nothing."""
    due = min(iterations, rotation.count)
    missed = rotation.unwritten() - (rotation.count - due)
    return f"{missed} of {due} sets of buffers were never used: the caches were warm" if missed > 0 else ""


class _Worker:
    """One rank."""

    def __init__(
        self, settings: Settings, device: Device, ranks: Ranks, progress: Callable[[str], None], build: Build
    ) -> None:
        self.settings, self.device, self.ranks, self._progress, self._build = settings, device, ranks, progress, build
        self.results: list[Result] = []
        """On rank 0."""
        self.notes: list[str] = []
        self.versions: dict[str, str] = {}
        """Of what only this benchmark uses."""

    def measure(self, problem: Problem, engines: Sequence[str]) -> None:
        """Every engine. The buffers of one problem are gone when those of the next are drawn."""
        own = [name for name in engines if name != "hipblaslt"]
        if own:
            self._say(problem, "drawing the operands")
            count = sets_for(problem, self.device.rotation_bytes, self.device.memory_bytes)
            rotation = Rotation(problem, count, self.settings.device, self.settings.seed, self.device.fp8)
            self._note_rotation(problem, rotation)
            for name in own:
                self._measure(name, problem, rotation)
        if "hipblaslt" in engines:
            self._call(problem)

    def _measure(self, name: str, problem: Problem, rotation: Rotation) -> None:
        self._say(problem, f"{name}: checking the result" + " and timing tiles for it" * (name == "triton"))
        multiplication, accuracy = self._checked(self._build(name, problem, self.device), problem, rotation)
        run = multiplication.run
        self.ranks.require_right(f"{name}: {problem}", accuracy.explain(), _FIX)
        self._say(problem, f"{name}: measuring")
        prepared: list[int] = []

        def work(iteration: int) -> Callable[[], object]:
            a, b, c = rotation.operands(iteration)
            prepared.append(iteration)
            return lambda: run(a, b, c)

        rotation.forget()
        least, most = _WARM_UP_LIMITS_S
        seconds = self.settings.duration_s
        found = timed(work, self.device.kind, seconds, self.ranks, min(max(least, seconds), most))
        unused = stale(rotation, len(prepared)) if multiplication.writes else ""
        self.ranks.require_right(f"{name}: {problem}", unused, "report it to those who maintain the engine")
        method = ", ".join(filter(None, (multiplication.method, multiplication.chosen())))
        if found:
            self.results.append(Result(name, method, problem, found, accuracy.largest_error,
                                       accuracy.rows_checked, rotation.count, rotation.bytes))  # fmt: skip

    def _checked(self, made: Multiplication, problem: Problem, rotation: Rotation) -> tuple[Multiplication, Accuracy]:
        """What multiplies in the end, and how right it is.

        Raises:
            MachineError: its library has no kernel for the problem.
        """
        try:
            return made, check(made.run, rotation.operands(0), problem)
        except RuntimeError as error:  # whatever torch's libraries raise
            why = str(error).strip().partition("\n")[0]
            if not made.otherwise:
                fix = "choose other sizes, or another --dtype or --engine"
                raise MachineError(f"{made.method} cannot multiply {problem} here", why=why, fix=fix) from error
        self._note(problem, f"{made.method} cannot multiply this ({why}): {made.otherwise.method} does")
        return self._checked(made.otherwise, problem, rotation)

    def _call(self, problem: Problem) -> None:
        """`hipblaslt-bench`, which multiplies data of its own."""
        self._say(problem, "hipblaslt: checking the result")
        environ, place = HostRoot().environ, self.ranks.place
        trouble, rows, error = hipblaslt.wrong(problem, self.device.fp8, place.local_rank, environ)
        self.ranks.require_right(f"hipblaslt: {problem}", trouble, _FIX)
        self._say(problem, "hipblaslt: measuring")
        self.ranks.exchange(None)
        samples, version = hipblaslt.measure(problem, self.device.fp8, place.local_rank, self.settings.duration_s,
                                             environ)  # fmt: skip
        found = gathered(samples, self.ranks, steady=True)
        if found:
            self.versions["hipblaslt"] = version
            self.results.append(Result("hipblaslt", "hipblaslt-bench", problem, found, error, rows, 0, 0))

    def _say(self, problem: Problem, text: str) -> None:
        self._progress(f"{problem.name}: {text}" if problem.name else text)

    def _note(self, problem: Problem, text: str) -> None:
        note = f"{problem.label}: {text}" if len(self.settings.problems) > 1 else text
        self.notes += [note] if note not in self.notes else []

    def _note_rotation(self, problem: Problem, rotation: Rotation) -> None:
        if rotation.count == 1:
            self._note(problem, "the buffers do not rotate: there is memory for one set only")
        elif rotation.bytes <= self.device.rotation_bytes:
            self._note(problem, "the last-level cache may hold the buffers: there is no memory for more of them")


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
