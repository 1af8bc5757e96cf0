"""Structured events of a run: one JSON object a line in `logs/events.jsonl`, with time, level, event, node and rank.

The supervisor and what must stay light write here directly; everything else logs (`primus_core.get_logger`), which
adds its lines by the same function.
"""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from primus_core import variables
from primus_machine.files import plain_json
from primus_machine.files.atomic import append_line, regular
from primus_machine.variables import RUN_DIR

__all__ = [
    "CHECKPOINT_SAVED",
    "FILE",
    "SIGNAL",
    "TRAINING_BEGAN",
    "TRAINING_ENDED",
    "Events",
    "append",
    "checkpoint_saved",
    "known_secrets",
    "place",
    "read_events",
]

FILE = "logs/events.jsonl"
"""In the run directory."""
CHECKPOINT_SAVED = "checkpoint_saved"
SIGNAL = "signal"
"""The run was told to end."""
TRAINING_BEGAN = "training_began"
"""The first step begins. `saves`: the training saves checkpoints."""
TRAINING_ENDED = "training_ended"
"""With the last step, which has no line in `metrics.jsonl` where not each step is logged."""


def checkpoint_saved(run_dir: str, *, step: int, path: str) -> None:
    """Called by a backend's worker on one rank, once the checkpoint of `step` is whole at `path`."""
    Events.of_process(run_dir).emit(CHECKPOINT_SAVED, step=step, path=path)


def saved_steps(run_dir: str) -> set[int]:
    """Return the steps of the checkpoints that the run has told of."""
    steps = (event.get("step") for event in read_events(run_dir) if event.get("event") == CHECKPOINT_SAVED)
    return {step for step in steps if isinstance(step, int)}


def read_events(run_dir: str) -> Iterator[dict[str, Any]]:
    """Yield the events of the run; a line that is cut off is passed over."""
    with suppress(OSError), open(f"{run_dir}/{FILE}", encoding="utf-8", errors="replace", opener=regular) as file:
        for line in file:
            with suppress(ValueError):
                event = plain_json.loads(line)
                if isinstance(event, dict):
                    yield event


def place(environ: Mapping[str, str]) -> dict[str, Any]:
    """Whose lines are those of the process with this environment. A hook has no rank, whatever it inherits."""
    rank = "" if environ.get(variables.IN_HOOK) else environ.get("RANK", "")
    node = environ.get("NODE_RANK") or environ.get("GROUP_RANK", "")
    return {
        "run": environ.get(variables.RUN_ID) or os.path.basename(environ.get(RUN_DIR, "")),
        "node": int(node) if node.isdecimal() else 0,
        "rank": int(rank) if rank.isdecimal() else None,
        "host": os.uname().nodename,
    }


@functools.lru_cache(1)
def known_secrets(environ: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    """The secrets in the items of an environment, which is searched again only once it has changed."""
    from primus_machine.secrets.redaction import secret_values  # loaded when something is logged

    return secret_values(dict(environ))


def append(path: str, record: Mapping[str, Any]) -> None:
    """Add one masked line to `path`. Where that fails, this process says so once, and at its end how often."""
    try:
        append_line(path, plain_json.dumps(record))
    except OSError as error:  # a full disk must not end a run that trains
        _missing(path).count(error)


class _Missing:
    """The lines that this process could not add to a file."""

    def __init__(self, path: str) -> None:
        self.path, self.lines = path, 0

    def count(self, error: OSError) -> None:
        self.lines += 1
        if self.lines == 1:
            import atexit

            atexit.register(self._say_all)
            _warn(f"{self.path} cannot be written: {error.strerror}; lines of it are lost")

    def _say_all(self) -> None:
        _warn(f"{self.path} lacks {self.lines} line{'s' * (self.lines > 1)}")


_missing = functools.cache(_Missing)


def _warn(text: str) -> None:
    """In capitals: the console shows what any rank says so."""
    try:
        sys.stderr.write(f"primus: WARNING: {text}\n")
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):  # nobody reads any more, or it is closed
        pass


class Events:
    """Appends events to a file; `always` are fields of each of them."""

    def __init__(self, path: str, **always: Any) -> None:
        self._path, self._always = path, always

    @classmethod
    def of_process(cls, run_dir: str) -> Events:
        """Those of this process in the run at `run_dir`."""
        from primus_machine.host import HostRoot

        return cls(f"{run_dir}/{FILE}", **place(HostRoot().environ))

    def emit(self, event: str, *, level: str = "", **fields: Any) -> None:
        """Add one event; without a `level`, the end of something that failed is an error, and all else info."""
        from primus_machine.host import HostRoot
        from primus_machine.secrets.fields import masked

        level = level or ("error" if fields.get("exit_code") else "info")
        record = {"time": round(time.time(), 3), "level": level, "event": event, **self._always, **fields}
        append(self._path, masked(record, known_secrets(tuple(HostRoot().environ.items()))))
