"""Carries out a plan: makes the run directory, runs the steps, says how it ended. It decides nothing."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

from primus_core import failure, summary
from primus_core.errors import MachineError, RunDirectoryTaken
from primus_core.events import Events
from primus_core.files import link_atomically, write_atomically
from primus_core.host import HostRoot
from primus_core.plan import Plan, Requirement, Step
from primus_core.rundir import COMPLETED
from primus_core.secrets import redact, values_in
from primus_core.supervise import Ended, Signals, Watch, supervise

__all__ = ["execute"]


def execute(plan: Plan, host: HostRoot, *, debug: bool = False) -> int:
    """Run `plan` to its end; the exit code.

    Raises:
        MachineError: something that the plan requires is missing, or a program cannot be started.
        RunDirectoryTaken: another run made the directory since it was planned.
    """
    for requirement in plan.requires:
        _check(requirement, plan.place.directory)
    signals = Signals()
    try:
        return _Run(plan, host, signals, debug=debug).run()
    finally:
        signals.restore()


def _check(requirement: Requirement, run_dir: str) -> None:
    if _is_here(requirement):
        return
    nouns = {"module": "the Python module", "command": "the command", "file": "the file"}
    raise MachineError(f"{nouns[requirement.kind]} '{requirement.name}' is not here", fix=requirement.fix)


def _is_here(requirement: Requirement) -> bool:
    if requirement.kind == "file":
        return os.path.exists(requirement.name)
    if requirement.kind == "command":
        import shutil

        return shutil.which(requirement.name) is not None
    from importlib.util import find_spec  # finds a module without importing it

    try:
        return find_spec(requirement.name) is not None
    except ModuleNotFoundError:
        return False


def _unwritable(directory: str, error: OSError) -> MachineError:
    return MachineError(
        f"the run directory {directory} cannot be written",
        why=f"{error.strerror}: {error.filename}",
        fix="give a `workspace:` where you may write",
    )


class _Run:
    def __init__(self, plan: Plan, host: HostRoot, signals: Signals, *, debug: bool) -> None:
        self.plan, self.signals = plan, signals
        self.directory = plan.place.directory
        self.environ = {**host.environ, **{v.name: v.value for v in plan.environment}}
        self.secrets = values_in(plan, host.environ)
        self.started = time.time()
        self.debug = debug
        self.dropped = 0
        self.host = host

    def run(self) -> int:
        try:
            self._make()
        except OSError as error:
            raise _unwritable(self.directory, error) from None
        self.events = Events(
            f"{self.directory}/logs/events.jsonl",
            run=self.plan.place.run_id,
            node=self.plan.distributed.node_rank,
            host=self.host.hostname(),
        )
        self.events.emit("run_started", task=self.plan.task, world_size=self.plan.distributed.world_size)
        self._say(f"primus: run {_short(self.directory)}\n" + "".join(f"primus: note: {n}\n" for n in self.plan.notes))
        ended, step = Ended(0), None
        for step in self.plan.steps:
            self.events.emit("step_started", step=step.name)
            self._say(f"primus: {step.name}{_ranks(step)}\n")
            ended = supervise(step, self.environ, self._watch())
            self.dropped += ended.dropped
            self.events.emit("step_ended", step=step.name, exit_code=ended.exit_code)
            if ended.exit_code:
                break
        return self._finish(ended, step)

    def _make(self) -> None:
        """The run directory with everything that is known before the first process starts."""
        place = self.plan.place
        os.makedirs(os.path.dirname(self.directory), exist_ok=True)
        try:
            os.mkdir(self.directory)
        except FileExistsError:
            if not place.joined:
                raise RunDirectoryTaken(self.directory) from None
        os.makedirs(f"{self.directory}/logs", exist_ok=True)
        for file in self.plan.files:
            path = f"{self.directory}/{file.path}"
            os.makedirs(os.path.dirname(path), exist_ok=True)
            write_atomically(path, redact(file.text, self.secrets))
        write_atomically(f"{self.directory}/plan.json", redact(json.dumps(self.plan.to_dict(), indent=1), self.secrets))
        self._write_metadata(status="started")
        if place.link and not link_atomically(os.path.basename(self.directory), place.link):
            self._say(f"primus: note: {place.link} is no link, so it does not point at this run\n")

    def _write_metadata(self, **fields: Any) -> None:
        plan = self.plan
        data = {
            "run_id": plan.place.run_id,
            "command": list(plan.command),
            "task": plan.task,
            "runtime": plan.runtime,
            "primus_version": plan.primus_version,
            "host": self.host.hostname(),
            "user": self.environ.get("USER") or self.environ.get("LOGNAME") or str(os.getuid()),
            "cwd": self.host.cwd(),
            "pid": os.getpid(),
            "started": self.started,
            **fields,
        }
        write_atomically(f"{self.directory}/metadata.json", json.dumps(data, indent=1))

    def _watch(self) -> Watch:
        plan = self.plan
        return Watch(
            log_dir=f"{self.directory}/logs",
            secrets=self.secrets,
            signals=self.signals,
            grace_s=plan.grace_period_s,
            metrics_rank=plan.metrics_rank,
            log_file=plan.log_file,
            show_launcher=self.debug,
            on_signal=self._signalled,
        )

    def _signalled(self, number: int) -> None:
        import signal  # only a run that is being ended needs the name

        name = signal.Signals(number).name
        self.events.emit("signal", signal=name)
        self._say(f"primus: {name}: passed on to every rank; SIGKILL in {self.plan.grace_period_s:g} s\n")

    def _finish(self, ended: Ended, step: Step | None) -> int:
        code, first = ended.exit_code, None
        if ended.not_started:
            self._write_metadata(status="failed", exit_code=3, ended=time.time())
            raise MachineError(f"{step.name if step else 'a step'} could not be started", why=ended.not_started)
        if code and not ended.signal:
            first = failure.first_failure(self.directory, self._launch_log(), self.plan.distributed.node_rank)
            code = first.exit_code if first and step and step.ranks else code
        status = "interrupted" if ended.signal and code else "failed" if code else COMPLETED
        record = {"rank": first.rank, "what": first.what} if first else None
        try:
            self._write_metadata(status=status, exit_code=code, ended=time.time(), first_failure=record)
        except OSError as error:  # the run is over; what it came to must come back all the same
            self._say(f"primus: note: metadata.json could not be written: {error.strerror}\n")
        self.events.emit("run_ended", status=status, exit_code=code, first_failure=record)
        self._say(self._last_words(code, status, first, step))
        return code

    def _last_words(self, code: int, status: str, first: failure.Failure | None, step: Step | None) -> str:
        metrics = summary.read(f"{self.directory}/metrics.jsonl")
        if self.dropped:
            self._say(f"primus: note: {self.dropped} bytes of log text could not be written: disk full, or too slow?\n")
        run = _short(self.directory)
        if status == "failed":
            name = f"rank_{first.rank}.log" if first and step and step.ranks else "launch.log"
            block = failure.report(
                first,
                code,
                run_dir=run,
                log=f"{run}/logs/{name}",
                step=step.name if step else "run",
                last_metrics=summary.last_step(metrics),
                launch_log=self._launch_log(),
            )
            # A lone rank's traceback is the last thing on the console already.
            again = first is not None and step is not None and step.ranks > 1 and first.traceback
            trace = f"\n[rank {first.rank}] {first.traceback}\n" if first and again else "\n"
            return trace + block
        seconds = time.time() - self.started
        return summary.render(metrics, status=status, run_dir=run, seconds=seconds, next_steps=self.plan.next_steps)

    def _launch_log(self) -> str:
        try:
            with open(f"{self.directory}/logs/launch.log", encoding="utf-8", errors="replace") as file:
                return file.read()
        except OSError:
            return ""

    def _say(self, text: str) -> None:
        """Primus's own words go to stderr: stdout is the task's."""
        try:
            sys.stderr.write(text)
            sys.stderr.flush()
        except OSError:  # nobody reads any more; the run goes on
            pass
        if self.plan.log_file:
            _append(self.plan.log_file, text)


def _append(path: str, text: str) -> None:
    try:
        with open(path, "a", encoding="utf-8") as file:
            file.write(text)
    except OSError:  # a log that cannot be written ends no run
        pass


def _ranks(step: Step) -> str:
    return f": {step.ranks} rank{'s' if step.ranks > 1 else ''}" if step.ranks else ""


def _short(path: str) -> str:
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else relative
