"""Ends a job step of Slurm: srun's answer to a signal would be to kill every task at once.

python -m primus_core.launch.slurm_stop RUN_DIR [step|job] [NAME OF SIGNAL]
"""

from __future__ import annotations

import glob
import json
import os
import sys
from collections.abc import Sequence

__all__ = ["command"]


def command(run_dir: str, what: str, number: str = "") -> list[str]:
    """How to end the run's step, or the whole job that srun made for it; empty: no node has begun yet."""
    for path in sorted(glob.glob(f"{glob.escape(run_dir)}/nodes/*/metadata.json")):
        try:
            with open(path, encoding="utf-8") as file:
                known = json.load(file)
        except (OSError, ValueError):
            continue
        if known.get("job_id") and known.get("step_id"):
            step = f"{known['job_id']}.{known['step_id']}"
            flags = [f"--signal={number}"] if number else []
            return ["scancel", *flags, known["job_id"] if what == "job" else step]
    return []


def _main(words: Sequence[str]) -> int:
    found = command(*words)
    if found:
        os.execvp(found[0], found)  # noqa: S606  # words, and no shell
    return 1


if __name__ == "__main__":
    raise SystemExit(_main(sys.argv[1:]))
