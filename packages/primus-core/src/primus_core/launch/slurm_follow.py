"""Shows the log of a submitted job as it grows, until the job has ended; its exit code is the job's.

python -m primus_core.launch.slurm_follow RUN_DIR
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence

from primus_core.runs.saved import metadata

__all__ = ["exit_code", "fields", "follow"]

OVER = (
    "COMPLETED",
    "FAILED",
    "CANCELLED",
    "TIMEOUT",
    "NODE_FAIL",
    "PREEMPTED",
    "OUT_OF_MEMORY",
    "DEADLINE",
    "BOOT_FAIL",
)
_ENDED = ("completed", "failed", "interrupted")
_POLL_S = (0.5, 5.0)
"""The first wait and the longest: a controller with ten thousand jobs shall not feel us."""
_MAX_SILENCES = 5
"""So often scontrol may say nothing: a controller that is restarted comes back, a finished job is forgotten."""


def fields(text: str) -> dict[str, str]:
    """What `scontrol --oneliner show job` says. A value ends where the next name begins: paths may hold blanks."""
    return dict(re.findall(r"(?:^|\s)([A-Z][\w/:]*)=(.*?)(?=\s[A-Z][\w/:]*=|\s*$)", text))


def exit_code(job: dict[str, str], known: dict[str, object]) -> int:
    """The run's own exit code, as it wrote it down; or the job's, `7:0` or `0:15` with a signal."""
    code = known.get("exit_code")
    if known.get("status") in _ENDED and isinstance(code, int):
        return code
    number, _, signal = job.get("ExitCode", "").partition(":")
    found = 128 + int(signal) if signal.isdecimal() and int(signal) else int(number) if number.isdecimal() else 0
    return found or (0 if job.get("JobState") in ("COMPLETED", None) else 1)


def follow(run_dir: str) -> int:
    """Until the end."""
    number = str(metadata(run_dir).get("job_id", ""))
    own = f"{run_dir}/logs/slurm_{number}.log"  # scontrol cannot say a path with `%` or a line end
    job: dict[str, str] = {}
    shown = silences = 0
    wait, longest = _POLL_S
    while silences < _MAX_SILENCES:
        said = _ask(number)
        silences = 0 if said else silences + 1
        job = said or job
        log = own if os.path.exists(own) else job.get("StdOut", "")
        before, shown = shown, _show(log, shown)
        if job.get("JobState", "").split(" ")[0] in OVER:
            break
        wait = _POLL_S[0] if shown > before else min(wait * 1.2, longest)
        time.sleep(wait)
    code = exit_code(job, metadata(run_dir))
    sys.stderr.write(f"primus: job {number}: {job.get('JobState', 'forgotten by Slurm')}, exit code {code}\n")
    return code


def _ask(number: str) -> dict[str, str]:
    """What Slurm says of the job; empty: nothing."""
    words = ["scontrol", "--oneliner", "show", "job", number]
    try:
        return fields(subprocess.run(words, capture_output=True, text=True, check=False, timeout=60).stdout)
    except (OSError, subprocess.TimeoutExpired):
        return {}


def _show(path: str, start: int) -> int:
    """Print what a log has behind `start`; where it ends now."""
    try:
        with open(path, "rb") as file:
            file.seek(start)
            while data := file.read(1 << 16):
                sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
            return file.tell()
    except OSError:  # the job has not begun
        return start


def _main(words: Sequence[str]) -> int:
    try:
        return follow(words[0])
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    raise SystemExit(_main(sys.argv[1:]))
