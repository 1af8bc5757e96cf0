"""Starts the trainings, each a run of its own inside the run of `verify`, and reads what they leave."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from primus_core.errors import PrimusError, TrainingError
from primus_core.journal import summary
from primus_core.plan.plan import METRICS
from primus_core.runs import rundir
from primus_machine.errors import printed_in
from primus_machine.units import time_span
from primus_train.kit.alike import BATCH
from primus_train.kit.replicas import WANTED
from primus_verify import stored
from primus_verify.comparison import Step
from primus_verify.contract import Verifier
from primus_verify.layouts import REFERENCE, Layout
from primus_verify.lifeline import ending_with_parent

if TYPE_CHECKING:
    from primus_verify.warm import WarmPython

__all__ = ["ONE", "Trials"]

ONE = Layout(REFERENCE, {})
_RATE = 1e-3
_TIMED_OUT = 124
_CRASHES = (128 + signal.SIGABRT, 128 + signal.SIGBUS, 128 + signal.SIGSEGV)
_TRACEBACK = "Traceback (most recent call last)"
_MODULES = re.compile(r"^(?:\w+\.)+(?=\w+: )")
"""What stands before the name of an exception."""
_REASON = 500
"""Characters of a reason; the log has all."""
_SILENT_S = 600
"""Ranks that print nothing and make no step for so long hang; for longer, if trainings may take longer (--timeout)."""
_GRACE_S = 60
"""A launch ends its ranks in its own grace period, and needs some time besides."""


@dataclass(frozen=True)
class Trials:
    """How trainings start."""

    verifier: Verifier
    folder: str
    """Gets a log and a run directory of each."""
    experiment: str
    environ: Mapping[str, str]
    steps: int
    timeout_s: float
    prefix: str = ""
    """How the names of the runs begin."""
    batch: int = BATCH
    """Sequences in a step."""
    warm: WarmPython | None = None
    """Imports for all trainings; None: each imports for itself."""

    def settings(self, layout: Layout, start: str) -> dict[str, Any]:
        """Return the settings of a trial over those of the experiment.

        Without `start`, of the one that makes it.
        """
        steps = self.verifier.steps(self.steps, rate=_RATE) if start else self.verifier.steps(1, rate=0.0)
        own = self.verifier.settings(layout.degrees, self.batch)
        return {**own, **steps, **(self.verifier.start(start) if start else {})}

    def train(self, layout: Layout, start: str, changed: Mapping[str, Any] | None = None) -> str:
        """Train, with some settings `changed`; the run directory.

        Raises:
            TrainingError: it failed, with what it printed.
        """
        log = self.log(layout, start, changed or {})
        name = os.path.basename(log).removesuffix(".log")
        settings = {**self.settings(layout, start), **(changed or {})}
        words = [f"{key}={json.dumps(value)}" for key, value in settings.items()]
        primus = self.warm.primus() if self.warm else [sys.executable, "-m", "primus_core"]
        silent = str(round(max(_SILENT_S, self.timeout_s / 3)))
        argv = [*primus, "direct", "--hang-timeout", silent, "--", "train", "pretrain", "--new",
                "--config", self.experiment, f"exp_name={name}", *words]  # fmt: skip
        if self.warm:
            self.warm.prepare()
        code = self._run(argv, log, layout.ranks)
        if code in _CRASHES:  # heap corruption in native code comes and goes; wrong numbers stay
            code = self._run(argv, log, layout.ranks)
        with open(log, encoding="utf-8", errors="replace") as file:
            text = file.read()
        found = rundir.printed_in(text)
        run = os.path.abspath(found) if found else ""
        if code or not run:
            took = f"took longer than {time_span(self.timeout_s)} (--timeout)"
            what = took if code == _TIMED_OUT else f"failed with exit code {code}"
            who = f"the reference, on {layout.name}," if layout == ONE else layout.name
            raise TrainingError(f"{who} {what}", why=_reason(run, text), fix=f"read {log}")
        return run

    def log(self, layout: Layout, start: str, changed: Mapping[str, Any]) -> str:
        """Return the log of a training."""
        name = re.sub(r"[^A-Za-z0-9]+", "-", "+".join((layout.name if start else "start", *changed)))
        return os.path.join(self.folder, f"{self.prefix}{name}.log")

    def _run(self, argv: list[str], log: str, ranks: int) -> int:
        environ = {**self.environ, "GPUS_PER_NODE": str(ranks), WANTED: "1"}
        with open(log, "wb") as output:
            process = subprocess.Popen(
                ending_with_parent(argv), stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environ
            )
            try:
                return process.wait(self.timeout_s)
            except subprocess.TimeoutExpired:
                _end(process)
                return _TIMED_OUT
            except BaseException:  # Ctrl-C, SIGTERM: nothing is left running
                _end(process)
                raise

    def read(self, run: str) -> list[Step]:
        """Return what a run has after each step.

        Raises:
            PrimusError: it logged other steps.
        """
        rows = {row["step"]: row for row in summary.read(os.path.join(run, METRICS))}
        if sorted(rows) != list(range(1, self.steps + 1)):
            raise PrimusError(f"{run} logged the steps {sorted(rows)}", why=f"{self.steps} were expected")
        return [
            Step(
                float("nan") if row["loss"] is None else row["loss"],
                row["grad_norm"],
                partial(stored.read, self.verifier, self.verifier.checkpoint(run, step)),
            )
            for step, row in sorted(rows.items())
        ]


def _reason(run: str, log: str) -> str:
    """Return what failed first, or else the last error that was printed: of a traceback, its last line."""
    try:
        with open(os.path.join(run, "metadata.json"), encoding="utf-8") as file:
            first = json.load(file).get("first_failure") or {}
    except (OSError, ValueError):
        first = {}
    if first.get("what"):
        rank = first.get("rank", -1)  # below 0 where all of them ended, as by a time limit
        return f"{f'rank {rank}: ' if rank >= 0 else ''}{_in_one_line(first['what'])}"
    errors = printed_in(log)
    return errors[-1][:_REASON] if errors else ""


def _in_one_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()] or [""]
    return _MODULES.sub("", lines[-1 if _TRACEBACK in text else 0])[:_REASON]


def _end(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        process.send_signal(signal.SIGTERM)
    until = time.monotonic() + _GRACE_S
    with suppress(subprocess.TimeoutExpired):
        process.wait(until - time.monotonic())
    process.kill()
    process.wait()
