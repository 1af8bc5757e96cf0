"""Tokens per second of the quickstart, against TorchTitan's own entry point with the same configuration."""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.ratio import Row

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
SKIPPED = 5  # steps at the start: allocation and caches
TPS = re.compile(r"\bstep:.*\btps: ([\d,]+)")


def _ours(folder: Path, steps: int) -> tuple[float, Path]:
    config = ROOT / "examples/quickstart.yaml"
    settings = [f"training.steps={steps}", "checkpoint.enable=false", f"workspace={folder}"]
    subprocess.run(
        [BIN / "primus", "direct", "--", "train", "pretrain", "--config", config, *settings],
        check=True,
        capture_output=True,
        cwd=folder,
    )
    run = (folder / "quickstart").resolve()
    lines = (run / "metrics.jsonl").read_text().splitlines()[SKIPPED:]
    return statistics.median(json.loads(line)["tokens_per_second"] for line in lines), run


def _theirs(run: Path) -> float:
    """TorchTitan's `train.main`, told what our plan told our worker, in the same environment."""
    plan = json.loads((run / "plan.json").read_text())
    environ = {**os.environ, **{v["name"]: v["value"] for v in plan["environment"] if v["origin"] == "torchtitan"}}
    command: list[str | Path] = [
        BIN / "torchrun",
        "--nproc-per-node",
        "1",
        ROOT / "benchmarks/torchtitan_alone.py",
        "--module",
        "torchtitan_alone",
        "--config",
        "quickstart",
    ]
    environ |= {"BENCHMARK_RUN": str(run), "PYTHONPATH": str(ROOT / "benchmarks")}
    result = subprocess.run(command, env=environ, text=True, capture_output=True, check=True, cwd=run)
    found = [int(tps.replace(",", "")) for tps in TPS.findall(result.stdout)]
    return statistics.median(found[SKIPPED:])


def rows(*, quick: bool) -> Iterator[Row]:
    """One row; the two run in turn."""
    ratios = []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(2 if quick else 4):
            tokens, run = _ours(Path(folder), 25 if quick else 60)
            ratios.append(tokens / _theirs(run))
    yield Row("tokens/s of the quickstart", "TorchTitan's own entry point", tuple(ratios), 0.98, at_least=True)
