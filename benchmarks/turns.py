"""Two trainings in turns: while one takes a few steps, the other is stopped.

A shared machine's speed drifts by more than what is measured here, within a minute. Turns are seconds apart, and of
each training's steps the upper quartile of speed is compared: what others do on the machine only ever adds to a step.
"""

from __future__ import annotations

import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import psutil

from benchmarks.ratio import Row

WARM = 5  # steps at the start: allocation and caches
SETTLE = 2  # steps after a turn begins: one was cut in two, and its line may have waited in the pipe
TURN = 8  # steps whose speed counts
ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
OURS = r"throughput: (?P<rate>[\d.]+) tokens/s"  # in the line of a step, with any backend


@dataclass(frozen=True)
class Comparison:
    """What is run against what."""

    what: str
    against: str
    at_least: float
    """The goal of tokens per second."""
    ours: Callable[[Path], Training]
    """Starts it, with this folder as workspace."""
    run: str
    """The run that it makes there."""
    theirs: Callable[[Path], Training]
    """Starts it, as that run was told."""


def rows(comparison: Comparison, *, quick: bool) -> Iterator[Row]:
    """Tokens per second and memory, a ratio for each time that the two are started. Both take the same steps."""
    speed, memory = [], []
    for _ in range(1 if quick else 3):
        rate, size = _compared(comparison, turns=8 if quick else 24)
        speed.append(rate)
        memory.append(size)
    yield Row(f"tokens/s of {comparison.what}", comparison.against, tuple(speed), comparison.at_least, at_least=True)
    yield Row(f"memory of {comparison.what}", comparison.against, tuple(memory), 1.02)


def _compared(comparison: Comparison, turns: int) -> tuple[float, float]:
    """Ratios of speed and of memory."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        ours = stack.enter_context(comparison.ours(folder))
        ours.warm_up()
        theirs = stack.enter_context(comparison.theirs((folder / comparison.run).resolve()))
        theirs.warm_up()
        for turn in range(turns):
            # A B B A: what drifts steadily favours neither.
            for training in (ours, theirs) if turn % 2 else (theirs, ours):
                training.turn()
        return ours.speed() / theirs.speed(), ours.most_memory() / theirs.most_memory()


def primus(folder: Path, config: str, *settings: str, line: str = OURS) -> Training:
    """Start a training of ours, with this folder as workspace."""
    command: list[str | Path] = [BIN / "primus", "direct", "--", "train", "pretrain", "--config", ROOT / config]
    return Training([*command, *settings, f"workspace={folder}"], folder, os.environ, line)


def alone(run: Path, framework: str, command: Sequence[str | Path], line: str) -> Training:
    """Start a training without us, in the environment that the run's plan made for the framework."""
    plan = json.loads((run / "plan.json").read_text(encoding="utf-8"))
    environ = {v["name"]: v["value"] for v in plan["environment"] if v["origin"] == framework}
    return Training(command, run, {**os.environ, **environ, "BENCHMARK_RUN": str(run)}, line)


def torchrun(run: Path, framework: str, *told: str, line: str) -> Training:
    """The same with torchrun and a framework's program of this folder."""
    program = ROOT / f"benchmarks/{framework}_alone.py"
    return alone(run, framework, [BIN / "torchrun", "--nproc-per-node", "1", program, *told], line)


class Training:
    """A training as a process tree.

    `line` finds in what it prints at the end of each step how long that took (`ms`), or how fast it was (`rate`).
    """

    def __init__(self, command: Sequence[str | Path], cwd: Path, environ: Mapping[str, str], line: str) -> None:
        self.line = re.compile(line)
        self.speeds: list[float] = []
        self.process = subprocess.Popen(
            command,
            env=environ,
            cwd=cwd,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        tree = self._tree()
        _tell(tree, signal.SIGKILL)
        self.process.communicate()
        psutil.wait_procs(tree)

    def steps(self, count: int) -> list[float]:
        """Let it take `count` steps, and give their speeds.

        Raises:
            RuntimeError: it ended before.
        """
        assert self.process.stdout is not None
        speeds: list[float] = []
        said: list[str] = []
        while len(speeds) < count:
            said.append(self.process.stdout.readline())
            if not said[-1]:
                raise RuntimeError("".join(["the training ended:\n", *said[-20:]]))
            if found := self.line.search(said[-1]):
                speeds.append(_speed(found))
        return speeds

    def warm_up(self) -> None:
        """Take the first steps, and stop."""
        self.steps(WARM)
        _tell(self._tree(), signal.SIGSTOP)

    def turn(self) -> None:
        """Go on, read the speed of a few steps, and stop."""
        _tell(self._tree(), signal.SIGCONT)
        self.speeds += self.steps(SETTLE + TURN)[SETTLE:]
        _tell(self._tree(), signal.SIGSTOP)

    def speed(self) -> float:
        """The upper quartile of the speeds of all turns."""
        return statistics.quantiles(self.speeds, n=4)[2]

    def most_memory(self) -> float:
        """Of one of its processes so far, GiB."""
        return max(_peak_gib(process.pid) for process in self._tree())

    def _tree(self) -> list[psutil.Process]:
        top = psutil.Process(self.process.pid)
        return [top, *top.children(recursive=True)]


def _speed(found: re.Match[str]) -> float:
    read = {name: float(number.replace(",", "")) for name, number in found.groupdict().items()}
    return read["rate"] if "rate" in read else 1 / read["ms"]


def _tell(processes: Iterable[psutil.Process], sign: int) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(sign)


def _peak_gib(pid: int) -> float:
    """The most memory that a process had so far (VmHWM of proc(5), KiB)."""
    with suppress(OSError):
        if found := re.search(r"^VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE):
            return int(found[1]) / 2**20
    return 0.0
