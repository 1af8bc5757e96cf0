"""CPU time of commands that a person waits for, against `python -c pass`, and file system calls of `--help`."""

from __future__ import annotations

import compileall
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from benchmarks.ratio import Row, paired

ROOT = Path(__file__).resolve().parent.parent
PRIMUS = str(Path(sys.executable).with_name("primus"))
FILE_CALLS = re.compile(
    r"^(?:access|close|faccessat2?|fstat|getcwd|getdents64|ioctl|lseek|lstat|newfstatat|open|openat|"
    r"pread64|read|readlink|readlinkat|stat|statx)\(",
    re.M,
)
READING = "from importlib.metadata import entry_points; entry_points(group='primus.tasks')"
"""What the standard library needs to find the tasks: as with us, calls grow with the number of packages installed."""
COMMANDS = (
    ("--version", ("--version",), 1.5),
    ("--help", ("--help",), 2.5),
    ("direct --dry-run -- bench gemm", ("direct", "--dry-run", "--", "bench", "gemm", "-M", "8192"), 6.0),
    (
        "direct --dry-run -- train pretrain",
        ("direct", "--dry-run", "--", "train", "pretrain", "--config", "examples/quickstart.yaml"),
        15.0,
    ),
)


def cpu_seconds(command: tuple[str, ...]) -> float:
    """User and system time of one run, as the kernel counts it."""
    pid = os.posix_spawn(
        command[0],
        command,
        os.environ,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
            (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
        ],
    )
    _, status, usage = os.wait4(pid, 0)
    if status:
        raise RuntimeError(f"{' '.join(command)} failed")
    return usage.ru_utime + usage.ru_stime


def rows(*, quick: bool) -> Iterator[Row]:
    """One row per command, and the count of file system calls."""
    os.chdir(ROOT)
    compileall.compile_dir(ROOT / "packages", quiet=1)  # as pip does when it installs; python -c pass is compiled, too
    bare = (sys.executable, "-c", "pass")
    for name, words, goal in COMMANDS:
        ratios = paired(partial(cpu_seconds, (PRIMUS, *words)), partial(cpu_seconds, bare), 7 if quick else 31)
        yield Row(f"CPU time of primus {name}", "python -c pass", ratios, goal)
    if shutil.which("strace"):
        ratio = _file_calls((PRIMUS, "--help")) / _file_calls((sys.executable, "-c", READING))
        yield Row("file system calls of primus --help", "importlib.metadata", (ratio,), 0.4)


def _file_calls(command: tuple[str, ...]) -> int:
    result = subprocess.run(["strace", "-f", *command], text=True, capture_output=True, check=True)
    return len(FILE_CALLS.findall(result.stderr))
