"""The data of the Python hooks, which cross a pipe as JSON between supervisor and hook process.

The hooks themselves stand in `primus_core.hooks.specs`. This module knows nothing of pluggy, since the supervisor and
planning, which need the names here, must not pay for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from primus_core.contracts.observer import Ranks, Stop

__all__ = [
    "AFTER_THE_END",
    "HOOKS",
    "Event",
    "FailureInfo",
    "HangInfo",
    "Ranks",
    "Result",
    "RunInfo",
    "StepMetrics",
    "Stop",
    "StopRun",
]

HOOKS: Mapping[str, tuple[str, ...]] = {
    "before_launch": ("run",),
    "after_launch": ("run",),
    "on_step": ("run", "metrics"),
    "on_checkpoint": ("run", "step", "path"),
    "on_event": ("run", "event"),
    "on_tick": ("run", "ranks"),
    "on_hang": ("run", "hang"),
    "on_failure": ("run", "failure"),
    "after_run": ("run", "result"),
}
"""Each hook and its arguments, as in `hookspecs` (a test holds the two equal)."""

AFTER_THE_END = ("on_failure", "after_run")
"""Hooks that are called when nothing of the run is left to be ended."""

_MAX_EXIT_CODE = 255
"""A process cannot end with more."""

StepMetrics = Mapping[str, Any]
"""One line of `metrics.jsonl`: the fields of `primus_core.journal.metrics.Metrics`, and what else a backend writes.

`loss` is None where it is not finite.
"""


Event = Mapping[str, Any]
"""One line of `logs/events.jsonl`: time, level, event, run, node, rank, host, and what else the event has."""


class StopRun(Exception):  # noqa: N818  # it asks for something; nothing has gone wrong
    """Raised in a hook: end the run gently, or do not launch it. `reason` is shown and recorded.

    The command ends with `exit_code`: 1 unless the hook says that this is a good end.
    What is no exit code is named in the reason, and the run ends with 1: a hook that wants to stop it must not fail to.
    """

    def __init__(self, reason: str = "", exit_code: int = 1) -> None:
        if not isinstance(exit_code, int) or not 0 <= exit_code <= _MAX_EXIT_CODE:
            wrong = f"StopRun(exit_code={exit_code!r}): it must be a whole number from 0 to {_MAX_EXIT_CODE}; using 1"
            reason, exit_code = f"{reason}; {wrong}" if reason else wrong, 1
        super().__init__(reason)
        self.exit_code = int(exit_code)


class RunInfo(NamedTuple):
    """The run, as every hook gets it."""

    run_id: str
    directory: str
    """The run directory; metrics and logs are there."""
    task: str
    framework: str
    """The backend; empty for a task without one."""
    model: str
    command: tuple[str, ...]
    """The command line, without secrets."""
    nnodes: int
    node_rank: int
    """Hooks run on every node; most plugins act where this is 0."""
    gpus_per_node: int
    world_size: int
    host: str
    config: Mapping[str, Any]
    """The resolved experiment; empty for a task without one."""


class FailureInfo(NamedTuple):
    """The first failure of a run."""

    rank: int
    """-1: no rank recorded a reason; the launcher or a script failed."""
    exit_code: int
    what: str
    traceback: str
    host: str


class HangInfo(NamedTuple):
    """Ranks of this node that are about to be ended, since none of them prints anything."""

    silent_s: float
    """For so long (`--hang-timeout`)."""
    ranks: Ranks


class Result(NamedTuple):
    """How a run ended."""

    status: str
    """`completed`, `failed`, `interrupted`, or `stopped` by a hook."""
    exit_code: int
    seconds: float
    last_step: int | None
    last_loss: float | None
    """None where it was not finite, too."""
