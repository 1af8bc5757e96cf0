"""Time from the command to the first line of the rank's program, against bare torchrun with the same program.

Primus takes its snapshot in it: once outside any repository, once in one with changes.
"""

from __future__ import annotations

import operator
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks import task
from benchmarks.ratio import Row, paired

PROGRAM = "import time\nprint('began', time.time(), flush=True)\n"


def _seconds(command: Sequence[str], folder: str) -> float:
    environ = {**os.environ, "PYTHONPATH": folder, "OMP_NUM_THREADS": "1"}
    began = time.time()
    result = subprocess.run(command, env=environ, cwd=folder, text=True, capture_output=True, check=True)
    [line] = [line for line in result.stdout.splitlines() if line.startswith("began ")]
    return float(line.split()[1]) - began


def _repository(folder: Path) -> None:
    """4,000 committed files in 100 folders, 200 of them changed, and 200 untracked ones of 4 KB."""
    for number in range(4000):
        path = folder / f"part{number % 100}" / f"module{number}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"value = {number}\n" * 50)
    (folder / ".gitignore").write_text("output/\n__pycache__/\n")
    author = ("-c", "user.name=ada", "-c", "user.email=ada@example.org")
    for words in (("init", "--quiet"), ("add", "--all"), (*author, "commit", "--quiet", "--message", "begin")):
        subprocess.run(("git", *words), cwd=folder, check=True)
    for path in sorted(folder.glob("part*/*.py"))[::20]:
        path.write_text(path.read_text() + "changed = True\n")
    for number in range(200):
        (folder / f"notes{number}.txt").write_text(f"{number:063}\n" * 64)


def rows(*, quick: bool) -> Iterator[Row]:
    """As a ratio, and in seconds."""
    bin_folder = Path(sys.executable).parent
    repetitions = 5 if quick else 15
    ours = (str(bin_folder / "primus"), "direct", "--", task.NAME)
    theirs = (str(bin_folder / "torchrun"), "--nproc-per-node", "1", "-m", task.PROGRAM)
    with tempfile.TemporaryDirectory() as folder:
        task.install(Path(folder), PROGRAM)
        pair = (lambda: _seconds(ours, folder), lambda: _seconds(theirs, folder))
        yield Row("command to first line of a rank", "torchrun", paired(*pair, repetitions), 1.05)
        _repository(Path(folder))
        late = paired(*pair, repetitions, operator.sub)
        yield Row("the same in a repository with 400 changes: seconds later", "torchrun", late, 0.3)
