"""Structured events of a run: one JSON object a line in `logs/events.jsonl`, with time, node and event."""

from __future__ import annotations

import os
import time
from typing import Any

from primus_core.files import plain_json
from primus_core.files.atomic import open_to_append

__all__ = ["CHECKPOINT_SAVED", "FILE", "TRAINING_ENDED", "Events", "checkpoint_saved"]

FILE = "logs/events.jsonl"
"""In the run directory."""
CHECKPOINT_SAVED = "checkpoint_saved"
TRAINING_ENDED = "training_ended"
"""With the last step, which has no line in `metrics.jsonl` where not each step is logged."""


def checkpoint_saved(run_dir: str, *, step: int, path: str) -> None:
    """Called by a backend's worker on one rank, once the checkpoint of `step` is whole at `path`."""
    Events(f"{run_dir}/{FILE}", host=os.uname().nodename).emit(CHECKPOINT_SAVED, step=step, path=path)


class Events:
    """Appends events to a file. Each is one write, so that a killed process leaves whole lines only."""

    def __init__(self, path: str, **always: Any) -> None:
        self._path, self._always = path, always

    def emit(self, event: str, **fields: Any) -> None:
        """Add one event."""
        from primus_core.host import HostRoot  # loaded where something is said
        from primus_core.secrets.redaction import redact, secret_values

        line = plain_json.dumps({"time": round(time.time(), 3), "event": event, **self._always, **fields})
        line = redact(line, secret_values(HostRoot().environ))
        try:
            self._append(line)
        except OSError:  # a full disk must not end a run that trains
            pass

    def _append(self, line: str) -> None:
        descriptor = open_to_append(self._path)
        try:
            os.write(descriptor, f"{line}\n".encode())
        finally:
            os.close(descriptor)
