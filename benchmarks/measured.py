"""A training as a process: the median time of its steps, read from what it prints, and the most memory it had."""

from __future__ import annotations

import re
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

SKIPPED = 5  # steps at the start: allocation and caches
STEP_MS = re.compile(r"elapsed time per iteration \(ms\): ([\d.]+)")
_COUNTED = """\
import resource, subprocess, sys
done = subprocess.run(sys.argv[1:], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
print(done.stdout, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, sep="\\n")
sys.exit(done.returncode)
"""
"""A command, and after it the most memory that one of its processes had, in KiB: it counts those that it waited for."""


def measured(
    command: Sequence[str | Path], cwd: Path, environ: Mapping[str, str], step: re.Pattern[str] = STEP_MS
) -> tuple[float, int]:
    """The median of what `step` finds, and KiB."""
    done = subprocess.run(
        [sys.executable, "-c", _COUNTED, *command], env=environ, cwd=cwd, text=True, capture_output=True, check=True
    )
    steps = [float(found) for found in step.findall(done.stdout)]
    return statistics.median(steps[SKIPPED:]), int(done.stdout.splitlines()[-1])
