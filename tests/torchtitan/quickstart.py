"""Trains the quickstart, smaller in every direction, with the real command; tests hold it at a step, and share what they can."""

from __future__ import annotations

import fcntl
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from tests.conftest import ROOT, plain_environ, wait_until

CONFIG = ROOT / "examples/quickstart.yaml"
SMALL = ("model.dim=64", "model.n_layers=2", "model.n_heads=4", "model.n_kv_heads=2", "model.ffn_hidden_dim=128",
         "data.vocab_size=512", "training.seq_len=64", "lr_scheduler.warmup_steps=2")  # fmt: skip
PRIMUS = str(Path(sys.executable).with_name("primus"))
STEPS = 40
WHOLE = (f"training.steps={STEPS}", "checkpoint.interval=10")
"""Settings of the run that several tests compare theirs with."""
HOLD = """
import os
if os.environ.get("RANK") == "0":
    import time
    import primus_core.journal.metrics as metrics
    line = metrics.log_line
    def hold(row):
        try:
            gate = f"{os.environ['HOLD_AT']}/{row.step}"
            os.rename(gate, f"{gate}.taken")
        except FileNotFoundError:
            return line(row)
        with open(f"{gate}.pid", "w") as file:
            file.write(f"{os.getpid()}\\n")
        while True:
            time.sleep(60)
    metrics.log_line = hold
"""


def train(*settings: str, dry: bool = False) -> tuple[str, ...]:
    """The command's words."""
    return (
        "direct",
        *(("--dry-run",) if dry else ()),
        "--",
        "train",
        "pretrain",
        "--config",
        str(CONFIG),
        *SMALL,
        *settings,
    )


def rows(run: Path) -> list[dict[str, Any]]:
    """The steps of a run."""
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def losses(run: Path) -> dict[int, float]:
    """Loss by step."""
    return {row["step"]: row["loss"] for row in rows(run)}


class Gates(NamedTuple):
    """Steps at which rank 0 stays, once each, before it tells of them: what came before is written by then."""

    folder: Path

    def environ(self, *steps: int) -> dict[str, str]:
        """What holds a run there."""
        self.folder.mkdir()
        (self.folder / "sitecustomize.py").write_text(HOLD)
        for step in steps:
            (self.folder / str(step)).touch()
        return {"PYTHONPATH": str(self.folder), "HOLD_AT": str(self.folder)}

    def wait(self, process: subprocess.Popen[Any], step: int) -> int:
        """Until `process` is held at that step; the rank's pid."""
        file = self.folder / f"{step}.pid"
        wait_until(lambda: process.poll() is not None or (file.exists() and file.read_text().endswith("\n")), 300)
        assert process.poll() is None, f"ended before step {step}"
        return int(file.read_text())


class Whole(NamedTuple):
    """A run that others compare theirs with, and how its command ended."""

    result: subprocess.CompletedProcess[str]
    run: Path


def shared(folder: Path, *settings: str) -> Whole:
    """The run with these settings in `folder`, which several pytest workers may ask for: the first one trains."""
    folder.mkdir(exist_ok=True)
    saved = folder / "result.json"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not saved.exists():
            shutil.rmtree(folder / "output", ignore_errors=True)  # of one that was cut off, which this would continue
            done = subprocess.run([PRIMUS, *train(*settings)], env=plain_environ(), cwd=folder, text=True,
                                  capture_output=True, timeout=500, stdin=subprocess.DEVNULL, check=False)  # fmt: skip
            saved.write_text(json.dumps([done.returncode, done.stdout, done.stderr]))
    code, out, err = json.loads(saved.read_text())
    return Whole(subprocess.CompletedProcess(settings, code, out, err), (folder / "output/quickstart").resolve())
