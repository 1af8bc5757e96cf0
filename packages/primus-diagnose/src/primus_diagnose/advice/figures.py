"""The figures of a run, from its plan: what advice is filled in with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from primus_core.config.document import at
from primus_core.journal.record import RunRecord
from primus_core.plan.plan import PLAN
from primus_machine.files import plain_json
from primus_machine.files.atomic import read_below

__all__ = ["Figures", "of_run"]

_MOST = 1 << 26


@dataclass(frozen=True, slots=True)
class Figures:
    """What is known of a run."""

    directory: str = ""
    framework: str = ""
    hyperparameters: Mapping[str, Any] = field(default_factory=dict)
    """In no framework's words."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The framework's, by dotted name."""
    plan: Mapping[str, Any] = field(default_factory=dict)
    record: RunRecord = field(default_factory=RunRecord)
    is_running: bool = False
    """Whether a process of the run is certainly alive."""

    def number(self, name: str) -> float | int | None:
        """One of the hyperparameters, where it is a number."""
        value = self.hyperparameters.get(name)
        return value if isinstance(value, int | float) and not isinstance(value, bool) else None

    def known(self, *path: str) -> Any:
        """What the plan says at `path`; None: nothing."""
        return at(self.plan, path)


def of_run(directory: str, record: RunRecord) -> Figures:
    """The figures of the run in `directory`; without one, or where its plan cannot be read, nothing is known."""
    try:
        plan = plain_json.loads(read_below(directory, PLAN, _MOST)) if directory else {}
    except (OSError, ValueError, RecursionError):
        plan = {}
    plan = plan if isinstance(plan, dict) else {}
    return Figures(
        directory=directory,
        framework=str(plan.get("framework") or ""),
        hyperparameters=_mapping(at(plan, ("config", "hyperparameters"))),
        settings=_mapping(at(plan, ("config", "settings"))),
        plan=plan,
        record=record,
    )


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
