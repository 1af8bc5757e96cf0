"""Tokens per second and memory of the quickstart, against TorchTitan's own entry point with the same configuration."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks import turns
from benchmarks.ratio import Row
from benchmarks.turns import Comparison, Training

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
SETTINGS = ["training.steps=1000", "checkpoint.enable=false"]  # more than are measured


def _ours(folder: Path) -> Training:
    config = ROOT / "examples/quickstart.yaml"
    command: list[str | Path] = [BIN / "primus", "direct", "--", "train", "pretrain", "--config", config, *SETTINGS]
    return Training([*command, f"workspace={folder}"], folder, os.environ, turns.OURS)


def _theirs(run: Path) -> Training:
    """TorchTitan's `train.main`, told what our plan told our worker, in the same environment."""
    plan = json.loads((run / "plan.json").read_text(encoding="utf-8"))
    environ = {**os.environ, **{v["name"]: v["value"] for v in plan["environment"] if v["origin"] == "torchtitan"}}
    environ |= {"BENCHMARK_RUN": str(run), "PYTHONPATH": str(ROOT / "benchmarks")}
    command: list[str | Path] = [BIN / "torchrun", "--nproc-per-node", "1", ROOT / "benchmarks/torchtitan_alone.py"]
    told = ["--module", "torchtitan_alone", "--config", "quickstart"]
    return Training([*command, *told], run, environ, r"\bstep:.*\btps: (?P<rate>[\d,]+)")


def rows(*, quick: bool) -> Iterator[Row]:
    """Two rows."""
    pair = Comparison("the quickstart", "TorchTitan's own entry point", 0.98, _ours, "quickstart", _theirs)
    yield from turns.rows(pair, quick=quick)
