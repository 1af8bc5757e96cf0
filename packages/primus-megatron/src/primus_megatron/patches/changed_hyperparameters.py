"""The hyperparameters of a continued run are its own, not those of the checkpoint.

Megatron loads the optimizer's groups of parameters with all that they hold: the peak and least learning rate, betas,
epsilon. Its scheduler reads the rates of the groups, so an overridden schedule has no effect (0.17, 0.18), or the
groups of the checkpoint are not found, because the rates are part of their names (0.19).
"""
# ruff: noqa: SLF001  # these methods have no public names

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from primus_megatron.patches._patch import patch

__all__ = ["PATCH"]

Group = dict[str, Any]
_IN_NAMES = ("max_lr", "min_lr", "start_wd", "end_wd")
"""Hyperparameters by which Megatron finds a group again."""
_STATE = ("params", "step", "lr", "weight_decay")
"""What a group holds that is not a hyperparameter, or that the scheduler sets at each step."""


def _apply() -> None:
    _find_groups()
    _keep_hyperparameters(_remember_batch_size())


def _find_groups() -> None:
    """Find the groups of a checkpoint, whatever rates they have."""
    from megatron.core.optimizer.distrib_optimizer import DistributedOptimizer
    from megatron.core.optimizer.optimizer import MegatronOptimizer

    reorder, load = MegatronOptimizer._filter_and_reorder_param_groups, DistributedOptimizer.load_state_dict

    def reordered(current: Sequence[Group], saved: Sequence[Group]) -> Any:
        return reorder(current, _renamed(current, saved))

    def load_state_dict(self: Any, state: Any) -> None:
        if groups := state.get("optimizer", {}).get("param_groups"):
            state["optimizer"]["param_groups"] = _renamed(self.optimizer.param_groups, groups)
        load(self, state)

    MegatronOptimizer._filter_and_reorder_param_groups = staticmethod(reordered)
    DistributedOptimizer.load_state_dict = load_state_dict


def _renamed(current: Sequence[Group], saved: Sequence[Group]) -> Sequence[Group]:
    """The `saved` groups with the names of the `current` ones. Both are in the order of Megatron's sorted keys."""
    from megatron.training import get_args

    if get_args().use_checkpoint_opt_param_scheduler or len(current) != len(saved):
        return saved
    pairs = zip(current, saved, strict=True)
    return [{**then, **{name: now[name] for name in _IN_NAMES if name in now}} for now, then in pairs]


def _remember_batch_size() -> Mapping[str, int]:
    """The global batch size of the checkpoint, once it is loaded."""
    from megatron.training import checkpointing

    found: dict[str, int] = {}
    check = checkpointing.check_checkpoint_args

    def checked(then: Any, *rest: Any, **kwargs: Any) -> None:
        found["global_batch_size"] = then.global_batch_size
        check(then, *rest, **kwargs)

    checkpointing.check_checkpoint_args = checked
    return found


def _keep_hyperparameters(then: Mapping[str, int]) -> None:
    from megatron.core.optimizer_param_scheduler import OptimizerParamScheduler
    from megatron.training import get_args

    create, load = OptimizerParamScheduler.__init__, OptimizerParamScheduler.load_state_dict

    def created(self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> None:
        self.own_groups = [
            {name: value for name, value in group.items() if name not in _STATE} for group in optimizer.param_groups
        ]
        create(self, optimizer, *args, **kwargs)

    def load_state_dict(self: Any, state: Mapping[str, Any]) -> None:
        if self.use_checkpoint_opt_param_scheduler:
            load(self, state)
            return
        now = get_args().global_batch_size
        if made := state.get("num_steps"):  # it counts samples, and the schedule is one of iterations
            state = {**state, "num_steps": made * now // then.get("global_batch_size", now)}
        load(self, state)
        for group, own in zip(self.optimizer.param_groups, self.own_groups, strict=True):
            group.update(own)
        self.step(0)

    OptimizerParamScheduler.__init__ = created
    OptimizerParamScheduler.load_state_dict = load_state_dict


PATCH = patch(
    id="changed-hyperparameters",
    reason="a continued run would train with the checkpoint's learning rates and betas, or fail with a KeyError",
    link="https://github.com/NVIDIA/Megatron-LM/blob/main/megatron/core/optimizer_param_scheduler.py",
    needed=lambda: True,
    apply=_apply,
)
