"""Tokens per second and memory of the small Megatron run, against Megatron's own loop with the same arguments.

Needs the environment `megatron`: hatch run megatron:bench
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from benchmarks import turns
from benchmarks.ratio import Row
from benchmarks.turns import Comparison, Training

SETTINGS = ["train_iters=1000", "save_interval=null", "eval_iters=0"]  # more iterations than are measured
STEP = r"elapsed time per iteration \(ms\): (?P<ms>[\d.]+)"  # our line has Megatron's words


def _ours(folder: Path) -> Training:
    return turns.primus(folder, "examples/megatron/quickstart-cpu.yaml", *SETTINGS, line=STEP)


def _theirs(run: Path) -> Training:
    return turns.torchrun(run, "megatron", line=STEP)


def rows(*, quick: bool) -> Iterator[Row]:
    """Two rows."""
    pair = Comparison("the small Megatron run", "Megatron's own loop", 0.99, _ours, "megatron-quickstart", _theirs)
    yield from turns.rows(pair, quick=quick)
