"""Latent attention whose queries have no latent, as DeepSeek V2 Lite's: what has no latent is not normed."""
# ruff: noqa: SLF001  # this method has no public name

from __future__ import annotations

from dataclasses import replace
from typing import Any

from primus_megatron.patches._patch import patch

__all__ = ["PATCH"]


def _apply() -> None:
    from megatron.core.transformer.identity_op import IdentityOp
    from megatron.core.transformer.mla_qk_norm_config import QKNormConfigResolver

    resolve, fused = QKNormConfigResolver.resolve, QKNormConfigResolver._mla_fused_linear_or_default

    def resolved(self: Any) -> Any:
        if not self.has_q_lora:
            self.submodules = replace(self.submodules, q_layernorm=IdentityOp)
        return resolve(self)

    def linear(self: Any, spec: Any, name: str) -> Any:
        return spec or self.linear_impl if name == "linear_q_proj" else fused(self, spec, name)

    QKNormConfigResolver.resolve, QKNormConfigResolver._mla_fused_linear_or_default = resolved, linear


PATCH = patch(
    id="latent-attention-whole-queries",
    reason="with qk_layernorm and no q_lora_rank local layers refuse themselves, and Transformer Engine's norm twice",
    link="https://github.com/NVIDIA/Megatron-LM/blob/main/megatron/core/transformer/mla_qk_norm_config.py",
    needed=lambda: True,
    apply=_apply,
    since=(0, 19),
)
