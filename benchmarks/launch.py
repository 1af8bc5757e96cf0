"""Time from the command to the first line of the rank's program, against bare torchrun with the same program."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.ratio import Row, paired

PROGRAM = "import time\nprint('began', time.time(), flush=True)\n"
# The smallest task there is: it runs that program on every rank.
TASK = '''"""Run the program."""
from primus_core.contracts import TaskPlan
from primus_core.plan import Worker


class Task:
    name, scope, epilog = "firstline", "rank", ""

    def add_arguments(self, parser): ...

    def plan(self, call):
        return TaskPlan(call.place("output", "firstline"), Worker("firstline_program"))


TASK = Task()
'''


def _package(folder: Path) -> None:
    (folder / "firstline_program.py").write_text(PROGRAM)
    (folder / "firstline_task.py").write_text(TASK)
    metadata = folder / "firstline-1.0.dist-info"
    metadata.mkdir()
    (metadata / "entry_points.txt").write_text("[primus.tasks]\nfirstline = firstline_task:TASK\n")


def _seconds(command: Sequence[str], folder: str) -> float:
    environ = {**os.environ, "PYTHONPATH": folder, "OMP_NUM_THREADS": "1"}
    began = time.time()
    result = subprocess.run(command, env=environ, cwd=folder, text=True, capture_output=True, check=True)
    [line] = [line for line in result.stdout.splitlines() if line.startswith("began ")]
    return float(line.split()[1]) - began


def rows(*, quick: bool) -> Iterator[Row]:
    """One row."""
    bin_folder = Path(sys.executable).parent
    with tempfile.TemporaryDirectory() as folder:
        _package(Path(folder))
        ours = (str(bin_folder / "primus"), "direct", "--", "firstline")
        theirs = (str(bin_folder / "torchrun"), "--nproc-per-node", "1", "-m", "firstline_program")
        ratios = paired(lambda: _seconds(ours, folder), lambda: _seconds(theirs, folder), 5 if quick else 15)
    yield Row("command to first line of a rank", "torchrun", ratios, 1.05)
