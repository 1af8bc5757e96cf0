"""The distributed optimizer's state from a checkpoint, where the optimizer is torch's own Adam.

Megatron loads it as Transformer Engine's, which keeps one step for all parameters: with torch's it fails, and once
past that all parameters share one tensor of steps, so the bias correction after a resumption is silently wrong.
"""
# ruff: noqa: SLF001  # these methods have no public names

from __future__ import annotations

from typing import Any

from primus_megatron.patches._patch import no_fused_optimizer, patch

__all__ = ["PATCH"]


def _apply() -> None:
    import torch
    from megatron.core.optimizer.distrib_optimizer import DistributedOptimizer

    load, sharded = DistributedOptimizer.load_state_dict, DistributedOptimizer.sharded_state_dict

    def sharded_state_dict(self: Any, model_sd: Any, is_loading: bool = False, *args: Any, **kwargs: Any) -> Any:
        if is_loading:
            _initialize(self.optimizer)
        return sharded(self, model_sd, is_loading, *args, **kwargs)

    def load_state_dict(self: Any, state: Any) -> None:
        with torch.no_grad():
            load(self, state)
        for own in self.optimizer.state.values():
            own["step"] = own["step"].clone()

    def set_parameter(self: Any, model_param: Any, tensors: Any) -> None:
        group, order = self.model_param_group_index_map[model_param]
        param = self.optimizer.param_groups[group]["params"][order]
        for name, value in {"param": param, **self.optimizer.state[param]}.items():
            if name != "step":
                value.copy_(tensors[name])

    DistributedOptimizer.sharded_state_dict = sharded_state_dict
    DistributedOptimizer.load_state_dict = load_state_dict
    DistributedOptimizer._set_main_param_and_optimizer_states = set_parameter


def _initialize(optimizer: Any) -> None:
    """An Adam that has made no step yet has no state to load into."""
    import torch

    for group in optimizer.param_groups:
        for param in group["params"]:
            if not optimizer.state[param]:
                moments = {name: torch.zeros_like(param) for name in ("exp_avg", "exp_avg_sq")}
                optimizer.state[param] = {"step": torch.tensor(0.0), **moments}


PATCH = patch(
    id="resumed-distributed-optimizer",
    reason="without Transformer Engine and Apex, a resumed distributed optimizer fails or has wrong steps",
    link="https://github.com/NVIDIA/Megatron-LM/blob/main/megatron/core/optimizer/distrib_optimizer.py",
    needed=no_fused_optimizer,
    apply=_apply,
)
