"""Keeps the optimizer's settings when a checkpoint is loaded: its state has those of the run that saved it.

TorchTitan 0.3 loads both: a changed weight decay would have no effect, a changed learning rate none in the first step.
"""

from __future__ import annotations

from typing import Any

__all__ = ["keep_settings"]

_NO_SETTINGS = ("params", "param_names", "lr")
"""In a parameter group. The learning rate is the scheduler's to say."""


def keep_settings(trainer: Any) -> None:
    """Have the trainer's `load` leave the optimizer's settings as they are, and the learning rate as scheduled."""
    theirs = trainer.checkpointer.load

    def load(*args: Any, **kwargs: Any) -> Any:
        before = [_settings(scheduler.optimizer) for scheduler in trainer.lr_schedulers]
        loaded = theirs(*args, **kwargs)
        for scheduler, groups in zip(trainer.lr_schedulers, before, strict=True):
            for group, settings, rate in zip(
                scheduler.optimizer.param_groups, groups, scheduler.get_last_lr(), strict=True
            ):
                group.update(settings, lr=rate)
        return loaded

    trainer.checkpointer.load = load


def _settings(optimizer: Any) -> list[dict[str, Any]]:
    """Of each parameter group."""
    return [{name: group[name] for name in group if name not in _NO_SETTINGS} for group in optimizer.param_groups]
