"""The run directory on disk: made, and its `metadata.json` kept up to date from the first moment to the last."""

from __future__ import annotations

import json
import os
import time
from typing import Any

from primus_core import summary
from primus_core.errors import MachineError, RunDirectoryTaken
from primus_core.facts import Facts
from primus_core.files import write_atomically
from primus_core.plan import Plan
from primus_core.runs.snapshot import part_of

__all__ = ["Record"]


class Record:
    """One run's directory, as far as this node writes it."""

    def __init__(self, plan: Plan, facts: Facts) -> None:
        self.plan, self.facts = plan, facts
        self.directory = plan.place.directory
        self.part = part_of(plan)
        self.started = time.time()

    def make(self) -> None:
        """The directory, marked as being prepared.

        Raises:
            RunDirectoryTaken: it is there already, and is not ours to join.
            MachineError: it cannot be written.
        """
        try:
            os.makedirs(os.path.dirname(self.directory), exist_ok=True)
            try:
                os.mkdir(self.directory)
            except FileExistsError:
                if not self.plan.place.joined:
                    raise RunDirectoryTaken(self.directory) from None
            os.makedirs(f"{self.directory}/{self.part}logs", exist_ok=True)
            os.makedirs(f"{self.directory}/logs", exist_ok=True)
            self.write(status="preparing")
        except OSError as error:
            raise unwritable(self.directory, error) from None

    def write(self, **fields: Any) -> None:
        """Write `metadata.json` with what is known of the run and these fields."""
        plan, host, environ = self.plan, self.facts.host, self.facts.host.environ
        data = {
            "run_id": plan.place.run_id,
            "command": list(plan.command),
            "task": plan.task,
            "runtime": plan.runtime,
            "framework": plan.framework,
            "model": plan.model,
            "gpu_model": plan.gpu_model,
            "world_size": plan.distributed.world_size,
            "primus_version": plan.primus_version,
            "host": host.hostname(),
            "user": environ.get("USER") or environ.get("LOGNAME") or str(os.getuid()),
            "cwd": self.facts.cwd,
            "pid": os.getpid(),
            "started": self.started,
            "parent": {"run_id": os.path.basename(plan.parent), "directory": plan.parent} if plan.parent else None,
            **fields,
        }
        write_atomically(f"{self.directory}/{self.part}metadata.json", json.dumps(data, indent=1))

    def end(self, status: str, exit_code: int, **fields: Any) -> str:
        """Record how it ended, with the last step; why that could not be written, or nothing."""
        rows = summary.read(f"{self.directory}/metrics.jsonl")
        last = {"last_step": rows[-1]["step"], "last_loss": rows[-1]["loss"]} if rows else {}
        try:
            self.write(status=status, exit_code=exit_code, ended=time.time(), **last, **fields)
        except OSError as error:  # the run is over; what it came to must come back all the same
            return f"metadata.json could not be written: {error.strerror}"
        return ""


def unwritable(directory: str, error: OSError) -> MachineError:
    """The error for a run directory that cannot be made or filled."""
    return MachineError(
        f"the run directory {directory} cannot be written",
        why=f"{error.strerror}: {error.filename}",
        fix="give a `workspace:` where you may write",
    )
