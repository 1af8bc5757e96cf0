"""What Slurm says of jobs, and the one place where it is asked: never for longer than a few seconds.

What it does not say (no such command here, a controller that is down, a look-alike that knows no such option) is not
known, and no error: who asks goes on with what the run itself wrote down.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

__all__ = ["FORGOTTEN", "Job", "Said", "ask", "cancel", "fields", "has_step", "job_in", "look", "run", "version"]

FORGOTTEN = "FORGOTTEN"
"""The state of a job that Slurm does not know: it ended some minutes ago or more, or there never was one."""

_PATIENCE_S = 5.0
_WAITS = ("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT")
_GOES_ON = ("RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "RESIZING", "STAGE_OUT")
_UNKNOWN_JOB = "Invalid job id"
_MARK = "\x1f"  # no name and no path has it
_FORMAT = _MARK.join(("%i", "%T", "%r", "%V", "%o"))
_NOTHING = ("", "(null)", "N/A", "None", "Unknown")
_SLACK_S = 300
"""A job was submitted so much after its run began only if it is another one, whatever clocks were set."""


class Said(NamedTuple):
    """What a command answered."""

    exit_code: int
    out: str
    errors: str


class Job(NamedTuple):
    """A job as Slurm tells of it. Empty and None: it does not say."""

    number: str
    state: str
    reason: str = ""
    """Why it waits: Resources, Priority, BeginTime, ..."""
    submitted: float | None = None
    command: str = ""
    """The job script; of srun without one, what it starts; `(null)`: what a person typed."""
    log: str = ""
    exit_code: str = ""
    """`7:0`, or `0:15` with a signal."""
    restarts: int = 0
    """How often it was put back into the queue."""

    @property
    def waits(self) -> bool:
        """Whether it has not begun, or will begin again."""
        return self.state in _WAITS

    @property
    def goes_on(self) -> bool:
        """Whether it runs, or its last processes are ending."""
        return self.state in _GOES_ON

    @property
    def is_over(self) -> bool:
        """Whether nothing of it is left."""
        return not self.waits and not self.goes_on

    def is_of(self, known: Mapping[str, Any]) -> bool | None:
        """Whether this is the job of the run with that metadata: numbers are used again. None: Slurm does not say.

        A job script lies in the directory of its run; a job without one was there when its run began, or soon after.
        """
        if known.get("submitted") and self.command:
            return os.path.basename(os.path.dirname(self.command)) == known.get("run_id")
        began = known.get("submitted") or known.get("started")
        if self.submitted is None or not isinstance(began, int | float):
            return None
        return self.submitted <= began + _SLACK_S


def ask(numbers: Iterable[str], environ: Mapping[str, str], cluster: str = "") -> dict[str, Job]:
    """The jobs by number, all with one question; nothing where nobody answers."""
    wanted = list(dict.fromkeys(numbers))
    if not wanted:
        return {}
    words = ["squeue", *_on(cluster), "--noheader", "--states=all", f"--jobs={','.join(wanted)}", f"--format={_FORMAT}"]
    said = run(words, environ)
    if said is None or (said.exit_code and _UNKNOWN_JOB not in said.errors):
        return {}
    rows = [line.split(_MARK) for line in said.out.splitlines()]
    found = {row[0]: _of_row(row) for row in rows if len(row) == 5}
    return {number: found.get(number) or Job(number, FORGOTTEN) for number in wanted}


def _of_row(row: Sequence[str]) -> Job:
    number, state, reason, submitted, command = map(str.strip, row)
    return Job(number, state, _told(reason), _moment(submitted), "" if command == "N/A" else command)


def look(number: str, environ: Mapping[str, str], cluster: str = "") -> Job | None:
    """One job, with its log and exit code where scontrol is at hand; None: nobody answers."""
    said = run(["scontrol", *_on(cluster), "--oneliner", "show", "job", number], environ)
    if said and (known := fields(said.out)).get("JobState"):
        command, log, code = (known.get(name, "") for name in ("Command", "StdOut", "ExitCode"))
        state, reason = known["JobState"].split(" ")[0], _told(known.get("Reason", ""))
        again = known.get("Restarts", "")
        restarts = int(again) if again.isdecimal() else 0
        return Job(number, state, reason, _moment(known.get("SubmitTime", "")), command, _told(log), code, restarts)
    if said and _UNKNOWN_JOB in said.errors:
        return Job(number, FORGOTTEN)
    if said is None and _is_here("scontrol", environ):  # a controller that keeps one waiting answers no other, too
        return None
    return ask([number], environ, cluster).get(number)


def has_step(step: str, environ: Mapping[str, str], cluster: str = "") -> bool:
    """Whether a step, `job.step`, is there, as far as anybody says."""
    said = run(["squeue", *_on(cluster), "--noheader", f"--steps={step}", "--format=%i"], environ)
    return not said or (step in said.out.split() if not said.exit_code else _UNKNOWN_JOB not in said.errors)


def cancel(target: str, flags: Sequence[str], environ: Mapping[str, str], cluster: str = "") -> str:
    """Have scancel end a job or a step, or signal it; why it would not, or nothing."""
    said = run(["scancel", *_on(cluster), *flags, target], environ)
    if said is None:
        return "scancel is not here, or does not answer"
    return (said.errors.strip() or f"scancel ended with exit code {said.exit_code}") if said.exit_code else ""


def fields(text: str) -> dict[str, str]:
    """What `scontrol --oneliner show job` says. A value ends where the next name begins: paths may hold blanks."""
    return dict(re.findall(r"(?:^|\s)([A-Z][\w/:]*)=(.*?)(?=\s[A-Z][\w/:]*=|\s*$)", text))


_SUBMITTED = (
    re.compile(r"Submitted batch job ([0-9]+)(?: on cluster (\S+))?"),
    re.compile(r"([0-9]+)(?:;(\S+))?"),
    re.compile(r"(?:.*\W)?[Jj]ob(?: ?[Ii][Dd])?\b[^0-9]{0,20}([0-9]+)()\b.*"),
)
"""How a submission is told, the surest first: sbatch's sentence, --parsable, and what look-alikes say."""


def job_in(lines: Iterable[str]) -> tuple[str, str]:
    """Number and cluster of the job that was submitted, from all that sbatch printed: sites greet before and after."""
    heard = [line.strip() for line in lines][::-1]
    for form in _SUBMITTED:
        for line in heard:
            if match := form.fullmatch(line):
                return match[1], match[2] or ""
    return "", ""


def version(program: str, environ: Mapping[str, str]) -> dict[str, str]:
    """What `srun --version` says: `{"flavour": "slurm", "version": "23.11.4"}`. A look-alike may say anything.
    One that fails says nothing of itself: its error is no flavour.
    """
    said = run([program, "--version"], environ)
    lines = (said.out or said.errors).splitlines() if said else []
    for line in lines:
        if match := re.fullmatch(r"([\w-]+) v?([0-9]+\.[0-9][\w.+-]*)", line.strip()):
            return {"flavour": match[1], "version": match[2]}
    answered = said and not said.exit_code and lines
    return {"flavour": lines[0].strip()[:80] if answered else "unknown", "version": ""}


def run(words: Sequence[str], environ: Mapping[str, str], patience_s: float = _PATIENCE_S) -> Said | None:
    """What a command of the scheduler's says; None: it is not here, or says nothing in time."""
    import subprocess  # 10 ms that most commands need not pay

    # A person's own squeue settings would hide jobs.
    own = {name: value for name, value in environ.items() if not name.startswith("SQUEUE_")}
    try:
        process = subprocess.Popen(
            words, env={**own, "SLURM_TIME_FORMAT": "%s"}, text=True, errors="replace", start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
    except OSError:
        return None
    try:
        out, errors = process.communicate(timeout=patience_s)
    except BaseException as error:
        os.killpg(process.pid, signal.SIGKILL)  # a wrapper's own child would keep the pipes open
        process.communicate()
        if isinstance(error, subprocess.TimeoutExpired):
            return None
        raise
    return Said(process.returncode, out, errors)


def _is_here(program: str, environ: Mapping[str, str]) -> bool:
    return any(os.access(f"{folder}/{program}", os.X_OK) for folder in environ.get("PATH", "").split(os.pathsep))


def _on(cluster: str) -> list[str]:
    return [f"--clusters={cluster}"] if cluster else []


def _told(text: str) -> str:
    return "" if text in _NOTHING else text


def _moment(text: str) -> float | None:
    """A time as `SLURM_TIME_FORMAT=%s` has it, or as a look-alike that does not know this prints it."""
    if re.fullmatch("[0-9]{1,12}", text):
        return float(text)
    try:
        return time.mktime(time.strptime(text, "%Y-%m-%dT%H:%M:%S"))
    except (ValueError, OverflowError):
        return None
