"""Plans of schema 2, as Primus 0.1 saved them, in the form of today."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from primus_core.plan.programs import OWN_TASK, RANK, RENDEZVOUS

__all__ = ["SCHEMA", "to_present"]

SCHEMA = 2
_PRESENT_SCHEMA = 3
_PROGRAMS: Mapping[str, str] = {
    "primus_core.rank": RANK,
    "primus_core.launch.rendezvous": RENDEZVOUS,
    "primus_core.registration": OWN_TASK,
    "primus_core.indexed_text": "primus_train.text.prepare",
}
"""Modules that such a plan may name, and what they are called today."""
_OF_SCHEDULER = ("together", "spares", "leave_out", "requeue")
"""What a step said of its scheduler among its own fields."""


def to_present(plan: Mapping[str, Any]) -> dict[str, Any]:
    """The same plan. Raises `KeyError`, `TypeError` or `AttributeError` where it is none."""
    worker = plan.get("worker")
    return {
        **plan,
        "schema": _PRESENT_SCHEMA,
        "worker": {**worker, "module": _PROGRAMS.get(worker["module"], worker["module"])} if worker else None,
        "steps": [_step(step) for step in plan["steps"]],
    }


def _step(step: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in step.items() if name not in _OF_SCHEDULER}
    name = step.get("scheduler")
    told = {key: step[key] for key in _OF_SCHEDULER if key in step}
    return {
        **kept,
        "argv": [_PROGRAMS.get(word, word) for word in step["argv"]],
        "scheduler": {"name": name, **told} if name else None,
    }
