"""Where to start a training again whose last loss was not finite: later checkpoints have the weights that gave it."""

from __future__ import annotations

import os
from collections.abc import Iterable

from primus_core.journal import record, summary
from primus_core.journal.events import CHECKPOINT_SAVED, read_events
from primus_core.plan.plan import METRICS

__all__ = ["last_finite", "restart_words"]


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
