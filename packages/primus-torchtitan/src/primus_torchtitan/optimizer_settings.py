"""Keeps the optimizer's settings when a checkpoint is loaded: its state has those of the run that saved it.

TorchTitan 0.3 loads both: a changed weight decay would have no effect, a changed learning rate none in the first step.
"""

from __future__ import annotations

import math
import os
from typing import Any

from primus_core.errors import TrainingError
from primus_torchtitan.checkpoints import resume_from
from primus_train.failed_loads import FailedLoads
from primus_train.kit.loaded_step import check_loaded_step

__all__ = ["check_first_step", "keep_settings"]

_NO_SETTINGS = ("params", "param_names", "lr")
"""In a parameter group. The learning rate is the scheduler's to say."""


def keep_settings(trainer: Any, failed: FailedLoads) -> None:
    """Have the trainer's `load` leave the optimizer's settings as they are, and the learning rate as scheduled.

    A checkpoint that cannot be loaded is remembered in `failed`.
    """
    checkpointer = trainer.checkpointer
    theirs = checkpointer.load
    if not checkpointer.enable:
        return

    def load(step: int = -1) -> Any:  # as the trainer calls it
        before = [_settings(scheduler.optimizer) for scheduler in trainer.lr_schedulers]
        own = resume_from(checkpointer.folder)[0] if step == -1 else step
        path = checkpointer.initial_load_path if own is None else os.path.join(checkpointer.folder, f"step-{own}")
        with failed.watched(*([str(path)] if path else [])):
            loaded = theirs(step=step)
        if loaded and trainer.step and step == -1:  # weights alone have no step
            _check_step(trainer.step, str(path))
        for scheduler, groups in zip(trainer.lr_schedulers, before, strict=True):
            for group, settings, rate in zip(
                scheduler.optimizer.param_groups, groups, scheduler.get_last_lr(), strict=True
            ):
                group.update(settings, lr=rate)
        return loaded

    checkpointer.load = load


def _check_step(loaded: int, path: str) -> None:
    """Compare the step that was loaded with the folder's."""
    step = os.path.basename(path).removeprefix("step-")
    if step.isdecimal():
        check_loaded_step(loaded, int(step), path)


def check_first_step(trainer: Any) -> None:
    """Let the first step end the run if its optimizers held other settings than those they were built with.

    Call it before a checkpoint is loaded. A state that brings its own would make the losses those of another run.
    """
    built = [_settings(scheduler.optimizer) for scheduler in trainer.lr_schedulers]
    step = trainer.train_step

    def first(*args: Any, **kwargs: Any) -> Any:
        trainer.train_step = step
        result = step(*args, **kwargs)
        _refuse_differences(trainer, built)
        return result

    trainer.train_step = first


def _refuse_differences(trainer: Any, built: list[list[dict[str, Any]]]) -> None:
    found = []
    for scheduler, groups in zip(trainer.lr_schedulers, built, strict=True):
        rates = zip(scheduler.optimizer.param_groups, groups, scheduler.get_last_lr(), strict=True)
        for group, settings, rate in rates:
            compared = {**settings, "lr": rate}
            found += [
                f"{name}: {compared[name]} set, {group[name]} used"
                for name in compared
                if _differ(compared[name], group[name])
            ]
    if found:
        raise TrainingError(
            "the optimizer does not use the settings of this run",
            why="\n".join(dict.fromkeys(found)),
            fix="report this to Primus, with the version of torchtitan; use the earlier run's values until then",
        )


def _differ(wanted: Any, used: Any) -> bool:
    """Whether two settings differ. A learning rate may be a tensor in float32, and JSON makes lists of tuples."""
    if isinstance(wanted, tuple | list):
        return len(wanted) != len(used) or any(map(_differ, wanted, used))
    if isinstance(wanted, float) or hasattr(wanted, "item"):
        return not math.isclose(float(wanted), float(used), rel_tol=1e-6)
    return bool(wanted != used)


def _settings(optimizer: Any) -> list[dict[str, Any]]:
    """Of each parameter group."""
    return [{name: group[name] for name in group if name not in _NO_SETTINGS} for group in optimizer.param_groups]
