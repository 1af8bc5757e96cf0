"""Shows the log of a submitted job as it grows, until the job has ended; its exit code is the job's.

python -m primus_slurm.follow RUN_DIR
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence

from primus_core.contracts.scheduler import Job
from primus_core.journal import record
from primus_core.journal.record import RunRecord
from primus_core.runs.state import ENDED
from primus_machine.host import HostRoot
from primus_machine.units import time_span
from primus_slurm import queries

__all__ = ["exit_code", "follow"]

_POLL_S = (0.5, 5.0)
"""The first wait and the longest: a controller with ten thousand jobs shall not feel us."""
_FIRST_S, _EVERY_S = 15.0, 60.0
_MAX_SILENCES = 5
"""So often Slurm may say nothing: a controller that is restarted comes back."""


def exit_code(job: Job, known: RunRecord) -> int:
    """The run's own exit code, as it wrote it down; or the job's."""
    if known.status in ENDED and known.exit_code is not None:
        return known.exit_code
    return job.exit_code or (0 if job.outcome == "completed" else 1)


def follow(run_dir: str) -> int:
    """Until the end, as Slurm tells it; where nobody answers, as the run itself does."""
    known = record.read(run_dir)
    environ, number = HostRoot().environ, known.job_id
    own = f"{run_dir}/logs/slurm_{number}.log"  # scontrol cannot say a path with `%` or a line end
    job = Job(number, "")
    shown = silences = 0
    waiting = _Waiting()
    wait, longest = _POLL_S
    while True:
        answer = queries.look(number, environ, known.cluster) if number else None
        silences = 0 if answer else silences + 1
        job = answer._replace(log=answer.log or job.log) if answer else job
        before, shown = shown, _show(own if os.path.exists(own) else job.log, shown)
        if answer and answer.has_ended:
            break
        waiting.look(job)
        if silences == _MAX_SILENCES:
            sys.stderr.write("primus: Slurm does not answer; waiting for the end of the run in its record\n")
        if silences >= _MAX_SILENCES and record.read(run_dir).status in ENDED:
            break
        wait = _POLL_S[0] if shown > before else min(wait * 1.2, longest)
        time.sleep(wait)
    code = exit_code(job, record.read(run_dir))
    sys.stderr.write(f"primus: job {number}: {job.state or 'not known to Slurm'}, exit code {code}\n")
    return code


class _Waiting:
    """Says what a job waits for that does not begin: after 15 s, then each minute."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.next_s = _FIRST_S

    def look(self, job: Job) -> None:
        waited = time.monotonic() - self.began
        if not job.is_pending or waited < self.next_s:
            return
        self.next_s = waited + _EVERY_S
        why = f" ({job.reason})" if job.reason else ""
        text = f"{job.state}{why}, for {time_span(waited)}; Ctrl-C stops the output, not the job"
        sys.stderr.write(f"primus: job {job.number}: {text}\n")
        sys.stderr.flush()


def _show(path: str, start: int) -> int:
    """Print what a log has behind `start`; where it ends now."""
    try:
        with open(path, "rb") as file:
            file.seek(start if start <= os.fstat(file.fileno()).st_size else 0)  # a job that begins again may empty it
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
