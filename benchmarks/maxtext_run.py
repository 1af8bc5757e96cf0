"""Tokens per second and memory of the small MaxText run, against MaxText's own entry point with the same settings.

Needs the environment `maxtext`: hatch run maxtext:bench
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.measured import measured
from benchmarks.ratio import Row

ROOT = Path(__file__).resolve().parent.parent
OURS = re.compile(r"throughput: ([\d.]+) tokens/s")
THEIRS = re.compile(r"Tokens/s/device: ([\d.]+)")


def _ours(folder: Path, steps: int) -> tuple[float, int]:
    config = ROOT / "examples/maxtext/quickstart-cpu.yaml"
    settings = [f"steps={steps}", "enable_checkpointing=false", "eval_interval=-1", f"workspace={folder}"]
    command: list[str | Path] = [Path(sys.executable).with_name("primus"), "direct", "--", "train", "pretrain"]
    return measured([*command, "--config", config, *settings], folder, os.environ, OURS)


def _theirs(run: Path) -> tuple[float, int]:
    """`python -m maxtext.trainers.pre_train.train`, told what our plan told our worker, in the same environment."""
    from primus_maxtext.worker import words

    plan = json.loads((run / "plan.json").read_text(encoding="utf-8"))
    config = json.loads((run / "config/backend_config.json").read_text(encoding="utf-8"))
    environ = {**os.environ, **{v["name"]: v["value"] for v in plan["environment"] if v["origin"] == "maxtext"}}
    entry = "from absl import app; from maxtext.trainers.pre_train import train; app.run(train.main)"
    told = {**config["settings"], "skip_jax_distributed_system": True}
    return measured([sys.executable, "-c", entry, *words(told)[1:]], run, environ, THEIRS)


def rows(*, quick: bool) -> Iterator[Row]:
    """Two rows; the two run in turn."""
    speed, memory = [], []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(2 if quick else 4):
            rate, size = _ours(Path(folder), 50 if quick else 150)
            rate_alone, size_alone = _theirs((Path(folder) / "maxtext-quickstart").resolve())
            speed.append(rate / rate_alone)
            memory.append(size / size_alone)
    yield Row("tokens/s of the small MaxText run", "MaxText's own entry point", tuple(speed), 0.98, at_least=True)
    yield Row("memory of the small MaxText run", "MaxText's own entry point", tuple(memory), 1.02)
