"""The way of a log line: eight ranks that print as fast as they can, against torchrun with the same program.

On both sides each line gets to a file of its rank. torchrun also shows all of them on the console, Primus those of
rank 0; Primus masks secrets. With both, a rank writes each line when it is printed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks import task
from benchmarks.ratio import Row

RANKS, LINES = 8, 100_000
BIN = Path(sys.executable).parent
# Like Megatron, TorchTitan, RCCL and a data loader. One line in two hundred has words that were never printed before.
PROGRAM = """
import os
import random

MEGATRON = (
    " [2026-11-23 02:%02d:%02d.%03d] iteration %8d/ 1000000 | consumed samples: %12d | elapsed time per iteration "
    "(ms): %.1f | learning rate: %.6E | global batch size:   512 | lm loss: %.6E | loss scale: 1.0 | grad norm: %.3f | "
    "number of skipped iterations:   0 | number of nan iterations:   0 |"
)
TORCHTITAN = (
    "[rank%d]:2026-11-23 02:09:%02d,%03d - root - INFO - step: %6d  loss: %8.5f  grad_norm: %7.4f  memory: "
    "%5.2fGiB(%.2f%%)  tps: %d  tflops: %.2f  mfu: 41.30%%"
)
RCCL = "node1:4242:43%02d [%d] NCCL INFO Channel %02d/0 : %d[%d] -> %d[%d] via P2P/IPC/read"
LOADER = "DEBUG:data.loader: worker %d reads /data/corpus/shard-%05d-of-01000.bin: %.3f ms, max_queue_depth=%d"

rank, count = int(os.environ["RANK"]), int(os.environ["BENCHMARK_LINES"])
letters = "".join(random.Random(rank).choices("abcdefghijklmnopqrstuvwxyz    ", k=20_100))
for n in range(count):
    kind, s = n % 200, n % 60
    if kind < 80:
        minute, ms, loss = n // 60 % 60, n % 1000, 12 / (n + 1)
        print(MEGATRON % (minute, s, ms, n, n * 512, 1234 + s / 7, loss / 9000, loss, s / 7))
    elif kind < 140:
        print(TORCHTITAN % (rank, s, n % 1000, n, 9 / (n + 1), s / 7, s, s, n, s))
    elif kind < 170:
        print(RCCL % (s, rank, n % 32, rank, rank, n % 8, n % 8))
    elif kind < 199:
        print(LOADER % (n % 16, n % 1000, s / 7, s))
    else:
        print("sample %d: %s" % (n, letters[n * 7 % 20_011 :][:80]))
"""


def _usage(command: Sequence[str], folder: str, lines: int) -> tuple[float, float]:
    """Seconds that pass, and of CPU time in all its processes."""
    environ = {**os.environ, "PYTHONPATH": folder, "OMP_NUM_THREADS": "1", "GPUS_PER_NODE": str(RANKS)}
    environ.pop("PYTHONUNBUFFERED", None)  # as a person has it
    began = time.perf_counter()
    with open(f"{folder}/console", "wb") as console:
        process = subprocess.Popen(
            command, env={**environ, "BENCHMARK_LINES": str(lines)}, cwd=folder, stdout=console, stderr=console
        )
        _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if status:
        raise RuntimeError(f"{' '.join(command)} failed: {Path(folder, 'console').read_text()[-2000:]}")
    for logs in ("output", "logs"):
        shutil.rmtree(f"{folder}/{logs}", ignore_errors=True)
    return wall, usage.ru_utime + usage.ru_stime


def _pairs(commands: Sequence[Sequence[str]], lines: int, repetitions: int) -> Iterator[tuple[float, float]]:
    """Ratios of wall and of CPU time, after a pair that warms the caches."""
    with tempfile.TemporaryDirectory() as folder:
        task.install(Path(folder), PROGRAM)
        for turn in range(repetitions + 1):
            order = (0, 1) if turn % 2 else (1, 0)  # A B B A: what drifts steadily favours neither
            usage = {which: _usage(commands[which], folder, lines if turn else 100) for which in order}
            if turn:
                yield usage[0][0] / usage[1][0], usage[0][1] / usage[1][1]


def rows(*, quick: bool) -> Iterator[Row]:
    """Wall and CPU time of the whole run."""
    ours = (str(BIN / "primus"), "direct", "--", task.NAME)
    tee = ("--nproc-per-node", str(RANKS), "--tee", "3", "--log-dir", "logs")
    theirs = (str(BIN / "torchrun"), *tee, "-m", task.PROGRAM)
    wall, cpu = zip(*_pairs((ours, theirs), LINES, 2 if quick else 8), strict=True)
    what = f"{RANKS} ranks that print {LINES:,} lines each"
    yield Row(f"time of {what}", "torchrun --tee 3", wall, 1.15)
    yield Row(f"CPU time of {what}", "torchrun --tee 3", cpu, 1.0)
