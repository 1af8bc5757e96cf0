"""Compares, after the first step, what MaxText's schedule and optimizer hold with the settings of the run.

The optimizer is made of MaxText's configuration, which a named model or a rule of MaxText may change. Its state comes
from the checkpoint, and counts the steps of the schedule.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from primus_core.errors import TrainingError

__all__ = ["check_first_step"]

_COMPARED = (
    *("opt_type", "learning_rate", "learning_rate_final_fraction", "learning_rate_schedule_steps", "lr_schedule_type"),
    *("warmup_steps_fraction", "wsd_decay_steps_fraction", "wsd_decay_style", "steps", "gradient_clipping_threshold"),
    *("adam_b1", "adam_b2", "adam_eps", "adam_eps_root", "adam_weight_decay", "muon_beta", "muon_weight_decay"),
    *("per_device_batch_size", "gradient_accumulation_steps"),
)
"""Settings that a continued run may have otherwise."""
_COUNTS_ITSELF = ("skip_step_on_spikes", "enable_diloco")
"""With these, the optimizer counts other things than steps, too."""


def check_first_step(settings: Mapping[str, Any], config: Any, state: Any, step: int) -> None:
    """End the run if it uses other hyperparameters than its `settings`: its losses would be those of another run.

    `config`: MaxText's. `state`: what `step`, the first one, has made; MaxText counts from 0.

    Raises:
        TrainingError: it does.
    """
    found = [f"{name}: {wanted} set, {used} used" for name, wanted, used in _differing(settings, config)]
    if not any(getattr(config, name, False) for name in _COUNTS_ITSELF):
        counts = {int(count) for count in _counts(state)}
        found += [f"step of the schedule: {step + 1} made, {count} counted" for count in sorted(counts - {step + 1})]
    if found:
        raise TrainingError(
            "the optimizer does not use the settings of this run",
            why="\n".join(found),
            fix="report this to Primus, with the version of maxtext; use the earlier run's values until then",
        )


def _differing(settings: Mapping[str, Any], config: Any) -> Iterator[tuple[str, Any, Any]]:
    for name in _COMPARED:
        wanted, used = settings.get(name), getattr(config, name, None)
        used = getattr(used, "value", used)  # of an enumeration
        if wanted is not None and wanted != -1 and not _same(wanted, used):  # -1: MaxText's own choice
            yield name, wanted, used


def _same(wanted: Any, used: Any) -> bool:
    numbers = isinstance(wanted, int | float) and isinstance(used, int | float)
    return math.isclose(wanted, used, rel_tol=1e-9) if numbers else bool(wanted == used)


def _counts(state: Any) -> Iterator[Any]:
    """Find the optimizer's counts of steps."""
    import jax

    for path, leaf in jax.tree_util.tree_flatten_with_path(state)[0]:
        names = [str(getattr(part, "key", getattr(part, "name", ""))) for part in path]
        if "opt_state" in names and "count" in names:
            yield leaf
