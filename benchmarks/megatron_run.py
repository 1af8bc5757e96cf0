"""Tokens per second and memory of the small Megatron run, against Megatron's own loop with the same arguments.

Needs the environment `megatron`: hatch run megatron:bench
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.measured import measured
from benchmarks.ratio import Row

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent


def _ours(folder: Path, iterations: int) -> tuple[float, int]:
    config = ROOT / "examples/megatron/quickstart-cpu.yaml"
    settings = [f"train_iters={iterations}", "save_interval=null", "eval_iters=0", f"workspace={folder}"]
    command: list[str | Path] = [BIN / "primus", "direct", "--", "train", "pretrain", "--config", config, *settings]
    return measured(command, folder, os.environ)


def _theirs(run: Path) -> tuple[float, int]:
    plan = json.loads((run / "plan.json").read_text(encoding="utf-8"))
    environ = {**os.environ, **{v["name"]: v["value"] for v in plan["environment"] if v["origin"] == "megatron"}}
    command: list[str | Path] = [BIN / "torchrun", "--nproc-per-node", "1", ROOT / "benchmarks/megatron_alone.py", run]
    return measured(command, run, environ)


def rows(*, quick: bool) -> Iterator[Row]:
    """Two rows; the two run in turn."""
    speed, memory = [], []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(2 if quick else 4):
            step, size = _ours(Path(folder), 25 if quick else 100)
            step_alone, size_alone = _theirs((Path(folder) / "megatron-quickstart").resolve())
            speed.append(step_alone / step)
            memory.append(size / size_alone)
    yield Row("tokens/s of the small Megatron run", "Megatron's own loop", tuple(speed), 0.99, at_least=True)
    yield Row("memory of the small Megatron run", "Megatron's own loop", tuple(memory), 1.02)
