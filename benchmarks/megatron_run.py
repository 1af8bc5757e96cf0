"""Tokens per second and memory of the small Megatron run, against Megatron's own loop with the same arguments.

Needs the environment `megatron`: hatch run megatron:bench
"""

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
SETTINGS = ["train_iters=1000", "save_interval=null", "eval_iters=0"]  # more than are measured
STEP = r"elapsed time per iteration \(ms\): (?P<ms>[\d.]+)"  # our line has Megatron's words


def _ours(folder: Path) -> Training:
    config = ROOT / "examples/megatron/quickstart-cpu.yaml"
    command: list[str | Path] = [BIN / "primus", "direct", "--", "train", "pretrain", "--config", config, *SETTINGS]
    return Training([*command, f"workspace={folder}"], folder, os.environ, STEP)


def _theirs(run: Path) -> Training:
    plan = json.loads((run / "plan.json").read_text(encoding="utf-8"))
    environ = {**os.environ, **{v["name"]: v["value"] for v in plan["environment"] if v["origin"] == "megatron"}}
    command: list[str | Path] = [BIN / "torchrun", "--nproc-per-node", "1", ROOT / "benchmarks/megatron_alone.py", run]
    return Training(command, run, environ, STEP)


def rows(*, quick: bool) -> Iterator[Row]:
    """Two rows."""
    pair = Comparison("the small Megatron run", "Megatron's own loop", 0.99, _ours, "megatron-quickstart", _theirs)
    yield from turns.rows(pair, quick=quick)
