"""Tokens per second and memory of the quickstart, against TorchTitan's own entry point with the same configuration."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from benchmarks import turns
from benchmarks.ratio import Row
from benchmarks.turns import Comparison, Training


def _ours(folder: Path) -> Training:
    return turns.primus(folder, "examples/quickstart.yaml", "training.steps=1000", "checkpoint.enable=false")


def _theirs(run: Path) -> Training:
    """TorchTitan's `train.main`, told what our plan told our worker."""
    told = ["--module", "torchtitan_alone", "--config", "quickstart"]
    return turns.torchrun(run, "torchtitan", *told, line=r"\bstep:.*\btps: (?P<rate>[\d,]+)")


def rows(*, quick: bool) -> Iterator[Row]:
    """Two rows."""
    pair = Comparison("the quickstart", "TorchTitan's own entry point", 0.98, _ours, "quickstart", _theirs)
    yield from turns.rows(pair, quick=quick)
