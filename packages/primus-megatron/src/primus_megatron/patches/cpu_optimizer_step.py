"""Optimizer steps with a CUDA build of torch on a machine without a GPU: no question to an absent accelerator."""

from __future__ import annotations

from primus_megatron.patches._patch import no_accelerator, patch

__all__ = ["PATCH"]

_CHECK = "_accelerator_graph_capture_health_check"


def _needed() -> bool:
    import torch

    return no_accelerator() and hasattr(torch.optim.Optimizer, _CHECK)


def _apply() -> None:
    import torch

    setattr(torch.optim.Optimizer, _CHECK, lambda self: None)


PATCH = patch(
    id="cpu-optimizer-step",
    reason="torch's optimizers ask the accelerator whether a graph is captured, once torch.cuda says that there is one",
    link="https://github.com/pytorch/pytorch/blob/main/torch/optim/optimizer.py",
    needed=_needed,
    apply=_apply,
)
