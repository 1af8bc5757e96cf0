"""What a training that was told to end, and saved no checkpoint of its last step, says of it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

from primus_core.journal import summary
from primus_core.journal.events import CHECKPOINT_SAVED, SIGNAL, TRAINING_BEGAN, TRAINING_ENDED, read_events
from primus_core.journal.summary import Row
from primus_core.plan.plan import METRICS, Plan

__all__ = ["describe_missed"]

_LONGER = 4
"""So many times the grace period is proposed where it was too short."""


class _Told(NamedTuple):
    """What the events say of the attempt that was told to end."""

    saves: bool = False
    has_begun: bool = False
    """It has begun a step."""
    newest: int = 0
    """The step of the newest checkpoint; 0: there is none."""
    has_saved: bool = False
    """It has finished a checkpoint since it was told to end."""
    ended: int = 0
    """The step after which it ended by itself; 0: it did not."""


def describe_missed(plan: Plan, *, killed: bool, hurried: bool = False) -> str:
    """Return what became of the missing checkpoint, in words; empty: there is one, or the training saves none.

    `killed`: the ranks did not end within the grace period. `hurried`: a further Ctrl-C did not give them that time.
    """
    told, rows = _read_events(plan.place.directory), summary.read(f"{plan.place.directory}/{METRICS}")
    if not (told.saves or told.newest or os.path.isdir(f"{plan.place.directory}/checkpoints")):
        return ""
    if not (lost := _lost(told, rows)):
        return ""
    grace = plan.grace_period_s
    if hurried:
        why = f"a further Ctrl-C killed the ranks at once; after the first signal they have {grace:g} s to save"
    elif killed:
        why = f"the ranks did not end within {grace:g} s and were killed; give them longer: "
        why += f"`direct --grace-period {max(60, round(grace * _LONGER))}`"
    else:
        why = "the ranks ended without saving; the end of their logs says why"
    left = f"the newest is of step {told.newest}" if told.newest else "there is none"
    return f"no checkpoint of {lost} ({left}): {why}"


def _lost(told: _Told, rows: Sequence[Row]) -> str:
    """Return the step without a checkpoint, in words; empty: there is one of the last step."""
    last = max(told.ended, rows[-1]["step"] if rows else 0)
    if told.newest < last:
        return f"step {last}"
    is_each_logged = len(rows) > 1 and rows[-1]["step"] - rows[-2]["step"] == 1
    if told.has_saved or told.ended or is_each_logged or not told.has_begun:
        return ""
    return "the step in hand"  # not each step has a line


def _read_events(directory: str) -> _Told:
    told = _Told()
    for event in read_events(directory):
        name, step = event.get("event"), event.get("step")
        if name == TRAINING_BEGAN:
            told = told._replace(saves=bool(event.get("saves")), has_begun=True, has_saved=False, ended=0)
        elif name == SIGNAL:
            told = told._replace(has_saved=False)
        elif name == CHECKPOINT_SAVED and isinstance(step, int):
            told = told._replace(newest=max(step, told.newest), has_saved=True)
        elif name == TRAINING_ENDED and isinstance(step, int):
            told = told._replace(ended=step)
    return told
