"""Runs the command of a check, with its output in a file, and finds what it measured."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import BinaryIO

from primus_bench.ci.checks import Check
from primus_bench.ci.golden import Measured
from primus_bench.comparison import documents
from primus_bench.measure import training
from primus_bench.report.steadiness import steadiness
from primus_core.errors import MachineError, Mistakes, PrimusError, RequestError
from primus_core.journal import summary
from primus_core.plan.plan import METRICS
from primus_core.runs import rundir
from primus_machine.errors import printed_in
from primus_machine.processes import end_with_parent

__all__ = ["Ran", "launch", "places", "require_plans"]

_PRIMUS = (sys.executable, "-m", "primus_core")
_GRACE_S = 60
"""A launch ends its ranks in its own grace period, and needs some time besides."""


@dataclass(frozen=True, slots=True)
class Ran:
    """How it ended, and what it measured."""

    exit_code: int
    log: str
    run: str = ""
    """Its run directory."""
    timed_out: bool = False
    wrong: str = ""
    """What is wrong with its result."""
    measured: Measured | None = None
    """None: it failed."""
    unsteady: Mapping[str, str] = field(default_factory=dict)
    """Why the times of a case, or the speeds of a training, were not steady."""


def require_plans(checks: Sequence[Check], environ: Mapping[str, str]) -> None:
    """Plan every check, so that nothing starts if one of them is wrong.

    Raises:
        RequestError: a command is refused; all of them.
    """
    mistakes = Mistakes()
    for check in checks:
        runtime, *more = check.words
        argv = [*_PRIMUS, runtime, "--dry-run", *more]
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, env=dict(environ), check=False)
        if done.returncode:
            text = done.stderr.decode(errors="replace")
            why = "\n".join(printed_in(text)) or text.rstrip()
            mistakes.add(RequestError(f"{check.name} cannot be planned", why=why, fix="correct its 'run'"))
    mistakes.refuse()


def places(check: Check, folder: str) -> tuple[str, str]:
    """Its log, and the result of its benchmark."""
    return f"{folder}/{check.name}.log", f"{folder}/{check.name}.json"


def launch(check: Check, folder: str, environ: Mapping[str, str]) -> Ran:
    """Run it; its log and its result are in `folder`.

    Raises:
        KeyboardInterrupt: a person or a scheduler ended it; the run has ended, too.
    """
    log, result = places(check, folder)
    with suppress(OSError):
        os.unlink(result)  # that of an earlier session is none of this one
    words = [*check.words, "--output", result] if check.kind == "bench" else list(check.words)
    code, timed_out = _run([*_PRIMUS, *words], log, check.timeout_s, environ)
    with open(log, encoding="utf-8", errors="replace") as file:
        run = rundir.printed_in(file.read())
    if code or timed_out:
        return Ran(code, log, run, timed_out)
    try:
        measured, unsteady = _of_benchmark(result) if check.kind == "bench" else _of_training(run)
    except PrimusError as error:
        return Ran(code, log, run, wrong=f"{error.what}: {error.why}" if error.why else error.what)
    return Ran(code, log, run, measured=measured, unsteady=unsteady)


def _run(argv: Sequence[str], log: str, timeout_s: float, environ: Mapping[str, str]) -> tuple[int, bool]:
    with _new(log) as output:
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=dict(environ),
                                   preexec_fn=end_with_parent)  # noqa: PLW1509  # there are none  # fmt: skip
        try:
            return _code(process.wait(timeout_s)), False
        except subprocess.TimeoutExpired:
            _end(process)
            return _code(process.returncode), True
        except BaseException:  # Ctrl-C, SIGTERM: nothing is left running
            _end(process)
            raise


def _new(log: str) -> BinaryIO:
    try:
        return open(log, "wb")
    except OSError as error:
        raise MachineError(f"{log} cannot be written", why=error.strerror or "", fix="name another: --output") from None


def _end(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        process.send_signal(signal.SIGTERM)
    try:
        process.wait(_GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _code(returned: int) -> int:
    return 128 - returned if returned < 0 else returned


def _of_training(run: str) -> tuple[Measured, Mapping[str, str]]:
    rows = summary.read(os.path.join(run, METRICS))
    loss: dict[str, float | None] = {str(row["step"]): row["loss"] for row in rows}
    speeds = training.steady(rows).values("tokens_per_second")
    found = steadiness([("tokens_per_second", [1 / speed for speed in speeds], "")])["cases"]
    unsteady = {name: f"not steady: {why}" for name, why in found.items()}
    return Measured(loss, speeds, max(training.values(rows, "memory_gib"), default=None)), unsteady


def _of_benchmark(result: str) -> tuple[Measured, Mapping[str, str]]:
    """The times of its cases, and why they are not steady.

    Raises:
        RequestError: it wrote no result, or one without times.
        PrimusError: a case is wrong.
    """
    data = documents.read(result)
    found = documents.by_name(data)
    if wrong := [name for name, case in found.items() if case["verified"] is not True]:
        raise PrimusError(f"{wrong[0]} has a wrong result")
    return Measured(time={name: case["samples"] for name, case in found.items()}), documents.unsteady_cases(data)
