"""The command that continues a run that did not end well, and where it may start: with weights of a finite loss."""

from __future__ import annotations

import math
import os
import re
import shlex
from collections.abc import Iterable, Sequence

from primus_core.journal import record, summary
from primus_core.journal.events import CHECKPOINT_SAVED, read_events, saved_steps
from primus_core.outcome.closing import without_once
from primus_core.plan.plan import METRICS
from primus_machine.secrets.names import SECRET

__all__ = ["continuing_line", "last_finite", "restart_words"]

_RATE = r"^((?:--)?(?:[\w.]+\.)?(?:min_)?(?:lr|learning_rate)=)([\d.]+(?:e[+-]?\d+)?)$"
"""As a learning rate is typed, in the words of each framework."""
_HIGH = 1e-3  # Adam's default: few trainings start higher


def continuing_line(typed: Sequence[str], directory: str, continues: str) -> str:
    """Return the command that continues the run in `directory`; empty: there is none.

    `typed`: how it was started. `continues`: the directory of the run that it continued itself; empty: it did not.
    """
    again, rows = without_once(typed), summary.read(f"{directory}/{METRICS}")
    if not again or SECRET in " ".join(again):
        return ""
    if rows and rows[-1]["loss"] is None:
        lower = [re.sub(_RATE, lambda typed: f"{typed[1]}{min(float(typed[2]) / 10, _HIGH):g}", word) for word in again]
        how = "with a lower learning rate"
        return f"{shlex.join([*lower, *shlex.split(restart_words(directory))])}    # {how}: the loss was not finite"
    end = rows[-1]["steps"] if rows and isinstance(rows[-1]["steps"], int) else math.inf
    newest = max(saved_steps(directory), default=0)
    if newest >= end:
        return ""
    if newest:
        how = "from the first step" if {"replay", "--replay"} & {*again} else f"continues from step {newest}"
        return f"{shlex.join(again)}    # {how}"
    # The run before is still the one to continue, and may need the words that were meant once.
    return f"{shlex.join(typed)}    # continues {os.path.basename(continues)} again" if continues else ""


def last_finite(rows: Iterable[summary.Row]) -> int | None:
    """Return the last step with a finite loss and gradient norm, if no later loss is finite; None: the last loss is.

    A checkpoint of an earlier step is good: its weights gave the finite loss of the step after it.
    """
    last, is_lost, has_norm = 0, False, False
    for row in rows:
        has_norm = has_norm or row.get("grad_norm") is not None
        if row["loss"] is None:
            is_lost = True
        elif row.get("grad_norm") is not None or not has_norm:  # a framework may not say it
            last, is_lost = row["step"], False
    return last if is_lost else None


def restart_words(directory: str) -> str:
    """Return what to add to the command of a training that ran in `directory`; empty: its last loss is finite."""
    finite = last_finite(summary.stream(f"{directory}/{METRICS}"))
    if finite is None:
        return ""
    saved = [event for event in read_events(directory) if event.get("event") == CHECKPOINT_SAVED]
    left = [event["step"] for event in saved if "://" in event["path"] or os.path.exists(event["path"])]
    if good := [step for step in left if step < finite]:
        return f"--continue {os.path.basename(directory)}@{max(good)}"
    before = record.read(directory).continues if finite else None
    return f"--continue {before.run_id}" if before else "--new"
