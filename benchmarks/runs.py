"""`primus runs list` of 5,000 runs, against reading the same files with the shell's own means."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from benchmarks.ratio import Row, paired

RUNS = 5000
PRIMUS = str(Path(sys.executable).with_name("primus"))


def _generate(folder: Path) -> None:
    """Runs of ten experiments, one a minute; one in a hundred has not ended."""
    for number in range(RUNS):
        started = 1_790_000_000 + 60 * number
        name = time.strftime(f"experiment{number % 10}_%Y_%m_%d_%H%M%S", time.localtime(started))
        directory = folder / name
        directory.mkdir()
        ended = {"status": "completed", "exit_code": 0, "ended": started + 50, "last_step": number, "last_loss": 2.5}
        known = {
            "run_id": name,
            "command": ["primus", "direct", "--", "train", "pretrain", "--config", "experiment.yaml"],
            "task": "train",
            "runtime": "direct",
            "framework": "torchtitan",
            "model": "llama3.1_8B",
            "primus_version": "0.1.0",
            "host": "node1",
            "user": "ada",
            "cwd": "/home/ada",
            "pid": 4242,
            "started": started,
            **(ended if number % 100 else {"status": "started"}),
        }
        (directory / "metadata.json").write_text(json.dumps(known, indent=1))
        (directory / "snapshot.json").write_text("{}")
        row = json.dumps({"step": number, "steps": 9999, "loss": 2.5, "time": started + 50})
        (directory / "metrics.jsonl").write_text(f"{row}\n" * 100)


def _seconds(command: Sequence[str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began


def rows(*, quick: bool) -> Iterator[Row]:
    """Wall time of the whole list, and of its newest twenty."""
    with tempfile.TemporaryDirectory() as folder:
        _generate(Path(folder))
        peer = ("sh", "-c", f"ls -l {folder} && find {folder} -name metadata.json -exec cat {{}} +")
        for name, words, goal in (("", (), 3.0), (" -n 20", ("-n", "20"), 1.0)):
            ours = (PRIMUS, "runs", "list", folder, *words)
            ratios = paired(partial(_seconds, ours), partial(_seconds, peer), 5 if quick else 21)
            yield Row(f"time of primus runs list{name}, {RUNS:,} runs", "ls -l, find and cat", ratios, goal)
