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
from typing import Any, Literal, NamedTuple

from primus_core.contracts.scheduler import FORGOTTEN, Job, Phase

__all__ = [
    "REASONS",
    "Answer",
    "ask",
    "cancel",
    "fields",
    "forgotten",
    "has_step",
    "job",
    "job_in",
    "look",
    "run",
    "version",
]

_PATIENCE_S = 5.0
_PHASES: Mapping[Phase, tuple[str, ...]] = {
    "pending": (
        *("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT"),
        "EXPEDITING",
    ),
    "running": (
        *("RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "RESIZING", "STAGE_OUT", "UPDATE_DB"),
        "POWER_UP_NODE",
    ),
    "ended": (
        *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED"),
        *("REVOKED", "TIMEOUT", "LAUNCH_FAILED", "RECONFIG_FAIL", FORGOTTEN),
    ),
}
"""The states of Slurm 20.02 to 25.11, and that of a job that it has forgotten."""
_UNKNOWN_JOB = "Invalid job id"
_MARK = "\x1f"
_FORMAT = _MARK.join(("%i", "%T", "%r", "%V", "%o"))  # the command, which a person names, comes last
_ROW = re.compile(rf"(?ms)^([0-9]\w*){_MARK}([^{_MARK}\n]*){_MARK}([^{_MARK}\n]*){_MARK}([^{_MARK}\n]*){_MARK}(.*?)$"
                  rf"(?=\s*\Z|\n[0-9]\w*{_MARK})")  # fmt: skip
_CLUSTER = re.compile(r"(?m)^CLUSTER: .*$")
"""squeue begins with this line where it is asked about another cluster."""
_FIELDS = {
    "state": r"JobState=(\S+) Reason=.*",
    "reason": r"JobState=\S+ Reason=(.*?)(?: FailedNode=\S+)?(?: Dependency=.*)?",
    "submitted": r"SubmitTime=(\S+)(?: .*)?",
    "command": r"Command=(.*)",
    "log": r"StdOut=(.*)",
    "exit_code": r"Requeue=\d+ Restarts=\d+ .*ExitCode=(\d+:\d+)(?: .*)?",
    "restarts": r"Requeue=\d+ Restarts=(\d+)(?: .*)?",
}
"""Lines of `scontrol show job` that matter, each whole: a name, path or comment is alone on its line, or ends it."""
_NOTHING = ("", "(null)", "N/A", "None", "Unknown")
_OUTCOMES: Mapping[str, Literal["completed", "interrupted"]] = {
    "COMPLETED": "completed",
    "CANCELLED": "interrupted",
    "REVOKED": "interrupted",
}
REASONS = {
    "TIME LIMIT": "the job's time limit was reached",
    "PREEMPTION": "the job was preempted",
    "JOB REQUEUE": "the job was put back into the queue",
}
"""What Slurm prints of why it ended a step, and what that means."""
STATES = {"TIMEOUT": REASONS["TIME LIMIT"], "DEADLINE": REASONS["TIME LIMIT"], "PREEMPTED": REASONS["PREEMPTION"]}
"""The same by the state of the job."""


class Answer(NamedTuple):
    """What a command answered."""

    exit_code: int
    out: str
    errors: str


def job(number: str, state: str, **details: Any) -> Job | None:
    """A job in one of Slurm's states; None: that is no state of Slurm, so nothing is known."""
    phase = next((phase for phase, states in _PHASES.items() if state in states), None)
    if not phase:
        return None
    return Job(number, state, phase, _OUTCOMES.get(state, ""), STATES.get(state, ""), state == "CANCELLED", **details)


def forgotten(number: str) -> Job:
    """A job that Slurm does not know any more."""
    return Job(number, FORGOTTEN)


def ask(numbers: Iterable[str], environ: Mapping[str, str], cluster: str = "") -> dict[str, Job]:
    """The jobs by number, all with one question; only those of which the answer is understood."""
    wanted = list(dict.fromkeys(filter(_is_number, numbers)))
    if not wanted:
        return {}
    words = ["squeue", *_on(cluster), "--noheader", "--states=all", f"--jobs={','.join(wanted)}", f"--format={_FORMAT}"]
    answer = run(words, environ)
    if answer is None or (answer.exit_code and _UNKNOWN_JOB not in answer.errors):
        return {}
    text = _CLUSTER.sub("", answer.out)
    found = {row[1]: _of_row(*row.groups()) for row in _ROW.finditer(text)}
    # A job that a whole answer leaves out is gone. One that an answer in another form leaves out may be there.
    is_whole = not _ROW.sub("", text).strip()
    missing = [number for number in wanted if number not in found] if is_whole else []
    known = {number: job for number, job in found.items() if job and number in wanted}
    return known | {number: forgotten(number) for number in missing}


def _of_row(number: str, state: str, reason: str, submitted: str, command: str) -> Job | None:
    command = "" if command.strip() == "N/A" else command.strip()
    return job(
        number, state.strip(), reason=_reported(reason.strip()), submitted=_moment(submitted.strip()), command=command
    )


def look(number: str, environ: Mapping[str, str], cluster: str = "") -> Job | None:
    """One job, with its log and exit code where scontrol is at hand; None: nobody answers, or not as Slurm does."""
    if not _is_number(number):
        return None
    answer = run(["scontrol", *_on(cluster), "show", "job", number], environ)
    if answer and (known := fields(answer.out, number)).get("state"):
        again = known.get("restarts", "")
        return job(
            number,
            known["state"],
            reason=_reported(known.get("reason", "")),
            submitted=_moment(known.get("submitted", "")),
            command=known.get("command", ""),  # `(null)` of a job without a script, which is no run's
            log=_reported(known.get("log", "")),
            exit_code=_exit_code(known.get("exit_code", "")),
            restarts=int(again) if again.isdecimal() else 0,
        )
    if answer and _UNKNOWN_JOB in answer.errors:
        return forgotten(number)
    if answer is None and _is_here("scontrol", environ):  # a controller that keeps one waiting answers no other, too
        return None
    return ask([number], environ, cluster).get(number)


def _is_number(text: str) -> bool:
    """Whether it is one of Slurm's, for its command lines: a run's record may be damaged, or another scheduler's."""
    return bool(re.fullmatch("[0-9]+", text))


def _exit_code(text: str) -> int | None:
    """`7:0`, or `0:15` with a signal."""
    number, _, by_signal = text.partition(":")
    if by_signal.isdecimal() and int(by_signal):
        return 128 + int(by_signal)
    return int(number) if number.isdecimal() else None


def has_step(step: str, environ: Mapping[str, str], cluster: str = "") -> bool:
    """Whether a step, `job.step`, is there, as far as anybody says."""
    answer = run(["squeue", *_on(cluster), "--noheader", f"--steps={step}", "--format=%i"], environ)
    if not answer or answer.exit_code:
        return not answer or _UNKNOWN_JOB not in answer.errors
    words = _CLUSTER.sub("", answer.out).split()
    return step in words or not all(re.fullmatch(r"[0-9_+]+\.\w+", word) for word in words)


def cancel(target: str, flags: Sequence[str], environ: Mapping[str, str], cluster: str = "") -> str:
    """Have scancel end a job or a step, or signal it; why it would not, or nothing."""
    answer = run(["scancel", *_on(cluster), *flags, target], environ)
    if answer is None:
        return "scancel is missing, or does not answer"
    return (answer.errors.strip() or f"scancel ended with exit code {answer.exit_code}") if answer.exit_code else ""


def fields(text: str, number: str) -> dict[str, str]:
    """What `scontrol show job` says of this job, by the names in `_FIELDS`.

    A field that is there twice is left out: a line end in a name can imitate it.
    """
    if not (begin := re.search(rf"(?m)^JobId={number} ", text)):
        return {}
    about = re.split(r"(?m)^JobId=[0-9]+ ", text[begin.end() :], maxsplit=1)[0]  # of an array, or heterogeneous
    said = {name: re.findall(rf"(?m)^ {{3}}{form}$", about) for name, form in _FIELDS.items()}
    return {name: values[0] for name, values in said.items() if len(values) == 1}


_SUBMITTED = (
    re.compile(r"Submitted batch job ([0-9]+)(?: on cluster (\S+))?"),
    re.compile(r"([0-9]+)(?:;(\S+))?"),
    re.compile(r"(?:.*\W)?[Jj]ob(?: ?[Ii][Dd])?\b[^0-9]{0,20}([0-9]+)()\b.*"),
)
"""How a submission is confirmed, the surest form first: sbatch's sentence, --parsable, and what look-alikes say."""


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
    answer = run([program, "--version"], environ)
    lines = (answer.out or answer.errors).splitlines() if answer else []
    for line in lines:
        if match := re.fullmatch(r"([\w-]+) v?([0-9]+\.[0-9][\w.+-]*)", line.strip()):
            return {"flavour": match[1], "version": match[2]}
    answered = answer and not answer.exit_code and lines
    return {"flavour": lines[0].strip()[:80] if answered else "unknown", "version": ""}


def run(words: Sequence[str], environ: Mapping[str, str], patience_s: float = _PATIENCE_S) -> Answer | None:
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
    except BaseException as error:  # Ctrl-C, too: the command is in a session of its own, and would go on
        os.killpg(process.pid, signal.SIGKILL)  # a wrapper's own child would keep the pipes open
        process.communicate()
        if isinstance(error, subprocess.TimeoutExpired):
            return None
        raise
    return Answer(process.returncode, out, errors)


def _is_here(program: str, environ: Mapping[str, str]) -> bool:
    return any(os.access(f"{folder}/{program}", os.X_OK) for folder in environ.get("PATH", "").split(os.pathsep))


def _on(cluster: str) -> list[str]:
    return [f"--clusters={cluster}"] if cluster else []


def _reported(text: str) -> str:
    return "" if text in _NOTHING else text


def _moment(text: str) -> float | None:
    """A time as `SLURM_TIME_FORMAT=%s` has it, or as a look-alike that does not know this prints it."""
    if re.fullmatch("[0-9]{1,12}", text):
        return float(text)
    try:
        return time.mktime(time.strptime(text, "%Y-%m-%dT%H:%M:%S"))
    except (ValueError, OverflowError):
        return None
