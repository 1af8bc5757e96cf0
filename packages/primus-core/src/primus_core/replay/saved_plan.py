"""Plans as runs saved them; those of earlier versions (modules moved since, schema 2 of 0.1) in the form of today."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from primus_core.plan.plan import (
    SCHEMA,
    Distributed,
    Plan,
    PlannedFile,
    Requirement,
    RunPlace,
    SchedulerStep,
    Step,
    Variable,
    Worker,
)
from primus_core.plan.programs import OWN_TASK, RANK, RENDEZVOUS
from primus_machine.errors import ConfigError
from primus_machine.files import plain_json

__all__ = ["load"]

_FORMER = 2
_PROGRAMS: Mapping[str, str] = {
    "primus_core.rank": RANK,
    "primus_core.launch.rendezvous": RENDEZVOUS,
    "primus_core.registration": OWN_TASK,
    "primus_core.indexed_text": "primus_data.training.prepare",
    "primus_train.text.prepare": "primus_data.training.prepare",
    "primus_core.runtimes.container.leftovers": "primus_container.leftovers",
    "primus_core.runtimes.slurm.follow": "primus_slurm.follow",
    "primus_core.runtimes.slurm.stop": "primus_slurm.stop",
}
"""Modules that a saved plan may name, and what they are called today."""
_PARTS: Mapping[str, Any] = {
    "place": RunPlace,
    "distributed": Distributed,
    "environment": Variable,
    "flags": Variable,
    "steps": Step,
    "after_failure": Step,
    "scheduler": SchedulerStep,
    "files": PlannedFile,
    "requires": Requirement,
    "worker": Worker,
}
"""Fields of a plan, and of its parts, that have fields themselves."""
_OF_SCHEDULER = ("together", "spares", "leave_out", "requeue")
"""The fields of a step that describe its scheduler."""


def load(text: str) -> Plan:
    """The plan in JSON `text` (a saved `plan.json`, or a dry run's `--json`).

    Raises:
        ConfigError: it is no plan, or one of another schema.
    """
    from pydantic import TypeAdapter  # 80 ms that only a loaded plan pays

    try:
        data = plain_json.loads(text)
        schema = data["schema"] if isinstance(data, dict) else None
        if schema == _FORMER:
            data = _to_present(data)
        elif isinstance(schema, int) and schema != SCHEMA:  # first: another schema has other fields, too
            raise ConfigError(
                f"the plan has schema {schema}, but this version of Primus reads {_FORMER} and {SCHEMA}",
                fix="use the Primus version that wrote it",
            )
        return TypeAdapter(Plan).validate_python(_known(Plan, _renamed(data)))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        why = f"it has no {error}" if isinstance(error, KeyError) else str(error)
        raise ConfigError("this is not a plan", why=why, fix="name the plan.json of a run") from None


def _known(kind: Any, data: Any) -> Any:
    """`data` of a `kind` without the fields that only a later version knows: it may add some to the same schema."""
    if isinstance(data, list):
        return [_known(kind, part) for part in data]
    if not isinstance(data, Mapping):
        return data
    kept = {name: value for name, value in data.items() if name in kind._fields}
    return {name: _known(_PARTS[name], value) if name in _PARTS else value for name, value in kept.items()}


def _to_present(plan: Mapping[str, Any]) -> dict[str, Any]:
    """A plan of schema 2 as one of today. Raises `KeyError`, `TypeError` or `AttributeError` where it is none."""
    return _renamed({**plan, "schema": SCHEMA, "steps": [_step(step) for step in plan["steps"]]})


def _step(step: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in step.items() if name not in _OF_SCHEDULER}
    name = step.get("scheduler")
    options = {key: step[key] for key in _OF_SCHEDULER if key in step}
    return {**kept, "scheduler": {"name": name, **options} if name else None}


def _renamed(plan: Mapping[str, Any]) -> dict[str, Any]:
    """The same plan with the programs that it starts by their names of today. Raises what `_to_present` does."""
    worker = plan.get("worker")
    return {
        **plan,
        "worker": {**worker, "module": _PROGRAMS.get(worker["module"], worker["module"])} if worker else None,
        "steps": [{**step, **_commands(step)} for step in plan["steps"]],
    }


def _commands(step: Mapping[str, Any]) -> dict[str, list[str]]:
    """The commands of a step."""
    named = (name for name in ("argv", "stop", "cleanup") if name in step)
    return {name: [_PROGRAMS.get(word, word) for word in step[name]] for name in named}
