"""Tokens per second and memory of the small MaxText run, against MaxText's own entry point with the same settings.

Needs the environment `maxtext`: hatch run maxtext:bench
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks import turns
from benchmarks.ratio import Row
from benchmarks.turns import Comparison, Training

SETTINGS = ["steps=1000", "enable_checkpointing=false", "eval_interval=-1"]  # more steps than are measured


def _ours(folder: Path) -> Training:
    return turns.primus(folder, "examples/maxtext/quickstart-cpu.yaml", *SETTINGS)


def _theirs(run: Path) -> Training:
    """`python -m maxtext.trainers.pre_train.train`, told what our plan told our worker."""
    from primus_maxtext.worker import words

    config = json.loads((run / "config/backend_config.json").read_text(encoding="utf-8"))
    entry = "from absl import app; from maxtext.trainers.pre_train import train; app.run(train.main)"
    # MaxText has another reader for the same files: it takes them in an order of its own.
    told = {**config["settings"], "grain_file_type": "mmap", "skip_jax_distributed_system": True}
    command = [sys.executable, "-c", entry, *words(told)[1:]]
    return turns.alone(run, "maxtext", command, r"Tokens/s/device: (?P<rate>[\d.]+)")


def rows(*, quick: bool) -> Iterator[Row]:
    """Two rows."""
    pair = Comparison("the small MaxText run", "MaxText's own entry point", 0.98, _ours, "maxtext-quickstart", _theirs)
    yield from turns.rows(pair, quick=quick)
