"""Ends a job step of Slurm: srun's answer to a signal would be to kill every task at once.

python -m primus_slurm.stop RUN_DIR [step|job] [NAME OF SIGNAL]
"""

from __future__ import annotations

import glob
import os
import re
import sys
from collections.abc import Sequence

from primus_core.journal import record

__all__ = ["command", "step_of"]


def step_of(run_dir: str) -> str:
    """`job.step` of a run's ranks, as its nodes wrote it down; empty: no node has begun yet."""
    for path in sorted(glob.glob(f"{glob.escape(run_dir)}/nodes/*")):
        known = record.read(path)
        step = f"{known.job_id}.{known.step_id}"
        if re.fullmatch(r"[0-9]+\.[0-9]+", step):
            return step
    return ""


def command(run_dir: str, what: str, number: str = "") -> list[str]:
    """How to end the run's step, or the whole job that srun made for it; empty: no node has begun yet."""
    step = step_of(run_dir)
    flags = [f"--signal={number}"] if number else []
    return ["scancel", *flags, step.partition(".")[0] if what == "job" else step] if step else []


def _main(words: Sequence[str]) -> int:
    found = command(*words)
    if found:
        os.execvp(found[0], found)  # noqa: S606  # words, and no shell
    return 1


if __name__ == "__main__":
    raise SystemExit(_main(sys.argv[1:]))
