"""What differs between two saved runs, also of two frameworks: of these, what both have words for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from primus_core.runs import comparison
from primus_core.runs.comparison import Difference, variables_of
from primus_core.runs.saved import Saved
from primus_core.runs.settings import same

__all__ = ["agreed", "compare", "is_one_framework"]

_NEUTRAL = "hyperparameters"
"""Where a backend says them in words that all have (`primus_train.kit.hyperparameters`)."""


def compare(a: Saved, b: Saved) -> list[Difference]:
    """What differs from `a` to `b`, by category.

    Of two frameworks, what only one has words for is left out: its settings, its variables, its packages.
    """
    return comparison.compare(*((a, b) if is_one_framework(a, b) else _in_common_words(a, b)))


def is_one_framework(a: Saved, b: Saved) -> bool:
    """Whether both runs have the same one, or none."""
    return bool(a.plan.get("framework") == b.plan.get("framework"))


def agreed(a: Saved, b: Saved) -> dict[str, Any]:
    """The hyperparameters in which runs of two frameworks agree."""
    if is_one_framework(a, b):
        return {}
    before, after = _common(_hyperparameters(a), _hyperparameters(b))
    return {name: value for name, value in before.items() if same(value, after[name])}


def _in_common_words(a: Saved, b: Saved) -> tuple[Saved, Saved]:
    """Both runs without what only one framework has words for."""
    own = _of_framework(a) ^ _of_framework(b)
    settings, packages = _common(_hyperparameters(a), _hyperparameters(b)), _common(a.packages, b.packages)
    first, second = (
        run._replace(
            configs={**run.configs, "backend_config": known},
            packages=installed,
            environment={name: value for name, value in run.environment.items() if name not in own},
        )
        for run, known, installed in zip((a, b), settings, packages, strict=True)
    )
    return first, second


def _of_framework(run: Saved) -> set[str]:
    """The variables that its framework asked for."""
    return variables_of(run, str(run.plan.get("framework")))


def _hyperparameters(run: Saved) -> dict[str, Any]:
    """Those that the backend knew of the run."""
    known, asked = (
        _mapping(_mapping(of).get(_NEUTRAL)) for of in (run.configs.get("backend_config"), run.plan.get("config"))
    )
    names = dict.fromkeys((*asked, *known))  # the plan has them in the order in which one reads them
    return {name: known[name] for name in names if known.get(name) is not None}


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _common(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Of both, what both have."""
    return [{name: one[name] for name in a if name in b} for one in (a, b)]
