"""Sequence parallelism with Megatron's local layers: the gradients of their norms are summed over the ranks."""

from __future__ import annotations

import copy
from typing import Any

from primus_megatron.patches._patch import no_transformer_engine, patch

__all__ = ["PATCH"]


def _apply() -> None:
    from megatron.core.transformer.torch_norm import WrappedTorchNorm

    make = WrappedTorchNorm.__new__

    def new(cls: Any, config: Any, *args: Any, **kwargs: Any) -> Any:
        plain = copy.copy(config)
        plain.sequence_parallel = False
        norm = make(cls, plain, *args, **kwargs)
        for parameter in norm.parameters():  # by this mark Megatron knows whose gradients are of a part of a sequence
            parameter.sequence_parallel = config.sequence_parallel
        return norm

    WrappedTorchNorm.__new__ = new


PATCH = patch(
    id="local-sequence-parallel",
    reason="the local layers' norms refuse sequence parallelism, for which their weights only need a mark",
    link="https://github.com/NVIDIA/Megatron-LM/blob/main/megatron/core/transformer/torch_norm.py",
    needed=no_transformer_engine,
    apply=_apply,
)
