"""What a training that was told to end, and saved no checkpoint of its last step, says of it."""

from __future__ import annotations

import os

from primus_core.journal import summary
from primus_core.journal.events import saved_steps
from primus_core.plan.plan import METRICS, Plan

__all__ = ["describe_missed"]

_LONGER = 4
"""So many times the grace period is proposed where it was too short."""


def describe_missed(plan: Plan, *, killed: bool) -> str:
    """Return the line about the missing checkpoint; empty: there is one, or the training saves none.

    `killed`: the ranks did not end within the grace period.
    """
    directory = plan.place.directory
    rows, saved = summary.read(f"{directory}/{METRICS}"), saved_steps(directory)
    last, newest = (rows[-1]["step"] if rows else 0), max(saved, default=0)
    saves = saved or os.path.isdir(f"{directory}/checkpoints")
    if not saves or not isinstance(last, int) or newest >= last:
        return ""
    grace = plan.grace_period_s
    if killed:
        more = f"--grace-period {max(60, round(grace * _LONGER))}"
        why = f"the ranks did not end within {grace:g} s and were killed; give them longer: primus direct {more}"
    else:
        why = "the ranks ended without saving; the end of their logs says why"
    left = f"the newest is of step {newest}" if newest else "there is none"
    return f"  lost   no checkpoint of step {last} ({left}): {why}\n"
