"""A training that was told to end says which step has no checkpoint, if one has none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from primus_core.journal.events import (
    CHECKPOINT_SAVED,
    FILE,
    SIGNAL,
    TRAINING_BEGAN,
    TRAINING_ENDED,
    Events,
)
from primus_core.journal.metrics import Metrics, append
from primus_core.outcome.missed_checkpoint import describe_missed
from primus_core.plan.plan import METRICS, Distributed, Plan, RunPlace

BEGAN: tuple[str, dict[str, Any]] = (TRAINING_BEGAN, {"saves": True})
TOLD: tuple[str, dict[str, Any]] = (SIGNAL, {})


def saved(step: int) -> tuple[str, dict[str, Any]]:
    return CHECKPOINT_SAVED, {"step": step}


def ended(step: int) -> tuple[str, dict[str, Any]]:
    return TRAINING_ENDED, {"step": step}


@pytest.mark.parametrize(
    ("logged", "events", "said"),
    [
        ((), (TOLD,), ""),
        ((), (BEGAN, TOLD), "the step in hand (there is none)"),
        ((), ((TRAINING_BEGAN, {"saves": False}), TOLD), ""),
        ((1, 2), (BEGAN, TOLD), "step 2 (there is none)"),
        ((1, 2, 3, 4, 5), (BEGAN, saved(5), TOLD), ""),
        ((1, 2, 3, 4, 5, 6), (BEGAN, saved(5), TOLD), "step 6 (the newest is of step 5)"),
        ((1, 2, 3, 4, 5, 6), (BEGAN, saved(5), TOLD, saved(6)), ""),
        ((10, 20), (BEGAN, saved(20), TOLD), "the step in hand (the newest is of step 20)"),
        ((10, 20), (BEGAN, saved(20), TOLD, saved(27), ended(27)), ""),
        ((10, 20), (BEGAN, saved(20), TOLD, ended(27)), "step 27 (the newest is of step 20)"),
        ((5, 3), (BEGAN, saved(2), BEGAN, TOLD, saved(3)), ""),
        ((1, 2), (BEGAN, saved(2), TOLD, saved(2), BEGAN), ""),
    ],
)
def test_the_step_without_a_checkpoint_is_named(
    tmp_path: Path, logged: tuple[int, ...], events: tuple[tuple[str, dict[str, Any]], ...], said: str
) -> None:
    (tmp_path / "logs").mkdir()
    for name, fields in events:
        Events(str(tmp_path / FILE)).emit(name, **fields)
    for step in logged:
        append(str(tmp_path / METRICS), Metrics(step=step, steps=100, loss=1.0))
    place = RunPlace("run", str(tmp_path), "")
    plan = Plan(0, "", (), "direct", "train", place, Distributed(1, 0, 1), (), ())
    found = describe_missed(plan, killed=True)
    assert found.partition("no checkpoint of ")[2].partition(": ")[0] == said
    assert ("--grace-period 60" in found) == bool(said)
