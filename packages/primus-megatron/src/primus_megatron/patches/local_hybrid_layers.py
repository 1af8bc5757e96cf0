"""Hybrid models in Megatron's local layers: the last norm, which Megatron takes from Transformer Engine."""

from __future__ import annotations

from primus_megatron.patches._patch import no_transformer_engine, patch

__all__ = ["PATCH"]


def _apply() -> None:
    from megatron.core.models.hybrid import hybrid_block
    from megatron.core.transformer.torch_norm import WrappedTorchNorm

    hybrid_block.TENorm = WrappedTorchNorm


PATCH = patch(
    id="local-hybrid-layers",
    reason="the last norm of a hybrid model is Transformer Engine's, whatever its layers are",
    link="https://github.com/NVIDIA/Megatron-LM/blob/main/megatron/core/models/hybrid/hybrid_block.py",
    needed=no_transformer_engine,
    apply=_apply,
    since=(0, 19),
)
