"""Structured events of a run: one JSON object a line in `logs/events.jsonl`, with time, level, event, node and rank.

The supervisor and what must stay light write here directly; everything else logs (`primus_core.get_logger`), which
adds its lines by the same function.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Mapping
from typing import Any

from primus_core import variables
from primus_core.files import plain_json
from primus_core.files.atomic import open_to_append

__all__ = [
    "CHECKPOINT_SAVED",
    "FILE",
    "TRAINING_ENDED",
    "Events",
    "append",
    "checkpoint_saved",
    "known_secrets",
    "place",
]

FILE = "logs/events.jsonl"
"""In the run directory."""
CHECKPOINT_SAVED = "checkpoint_saved"
TRAINING_ENDED = "training_ended"
"""With the last step, which has no line in `metrics.jsonl` where not each step is logged."""


def checkpoint_saved(run_dir: str, *, step: int, path: str) -> None:
    """Called by a backend's worker on one rank, once the checkpoint of `step` is whole at `path`."""
    Events.of_process(run_dir).emit(CHECKPOINT_SAVED, step=step, path=path)


def place(environ: Mapping[str, str]) -> dict[str, Any]:
    """Whose lines are those of the process with this environment. A hook has no rank, whatever it inherits."""
    rank = "" if environ.get(variables.IN_HOOK) else environ.get("RANK", "")
    node = environ.get("NODE_RANK") or environ.get("GROUP_RANK", "")
    return {
        "run": environ.get(variables.RUN_ID) or os.path.basename(environ.get(variables.RUN_DIR, "")),
        "node": int(node) if node.isdecimal() else 0,
        "rank": int(rank) if rank.isdecimal() else None,
        "host": os.uname().nodename,
    }


@functools.lru_cache(1)
def known_secrets(environ: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    """The secrets in the items of an environment, which is searched again only once it has changed."""
    from primus_core.secrets.redaction import secret_values  # loaded where something is said

    return secret_values(dict(environ))


def append(path: str, record: Mapping[str, Any]) -> None:
    """Add one line to `path`, in one write: a killed process leaves whole lines only, and no two lines mix.

    `record` has been masked.
    """
    line = f"{plain_json.dumps(record)}\n".encode()
    try:
        descriptor = open_to_append(path)
        try:
            os.write(descriptor, line)
        finally:
            os.close(descriptor)
    except OSError:  # a full disk must not end a run that trains
        pass


class Events:
    """Appends events to a file; `always` are fields of each of them."""

    def __init__(self, path: str, **always: Any) -> None:
        self._path, self._always = path, always

    @classmethod
    def of_process(cls, run_dir: str) -> Events:
        """Those of this process in the run at `run_dir`."""
        from primus_core.host import HostRoot

        return cls(f"{run_dir}/{FILE}", **place(HostRoot().environ))

    def emit(self, event: str, *, level: str = "", **fields: Any) -> None:
        """Add one event; without a `level`, the end of something that failed is an error, and all else info."""
        from primus_core.host import HostRoot
        from primus_core.secrets.fields import masked

        level = level or ("error" if fields.get("exit_code") else "info")
        record = {"time": round(time.time(), 3), "level": level, "event": event, **self._always, **fields}
        append(self._path, masked(record, known_secrets(tuple(HostRoot().environ.items()))))
