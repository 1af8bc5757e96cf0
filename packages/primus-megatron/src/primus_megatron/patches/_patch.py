"""The conditions that patches share, and the versions that they are for."""

from __future__ import annotations

from functools import partial
from importlib.util import find_spec

from primus_train.kit.patches import Patch

__all__ = ["no_accelerator", "no_fused_optimizer", "no_transformer_engine", "patch"]


patch = partial(Patch, since=(0, 17), before=(0, 20))
"""One for all versions of megatron-core that are supported, unless it says otherwise."""


def no_accelerator() -> bool:
    """Whether torch sees nothing but the CPU."""
    import torch

    return not torch.cuda.is_available()


def no_fused_optimizer() -> bool:
    """Whether Megatron's optimizers are torch's, for want of those of Transformer Engine and Apex."""
    return no_transformer_engine() and find_spec("apex") is None


def no_transformer_engine() -> bool:
    """Whether the layers are Megatron's local ones."""
    return find_spec("transformer_engine") is None
