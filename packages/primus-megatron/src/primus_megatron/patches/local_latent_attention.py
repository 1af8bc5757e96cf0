"""Latent attention (MLA) in Megatron's local layers: heads whose keys and values differ in width."""

from __future__ import annotations

from typing import Any

from primus_megatron.patches._patch import no_transformer_engine, patch

__all__ = ["PATCH"]


def _apply() -> None:
    from megatron.core.transformer.dot_product_attention import DotProductAttention

    begin, attend = DotProductAttention.__init__, DotProductAttention.forward

    def init(
        self: Any, *args: Any, k_channels: int | None = None, v_channels: int | None = None, **kwargs: Any
    ) -> None:
        begin(self, *args, **kwargs)
        if v_channels is not None:  # the width of what comes out; the scores' scale comes with softmax_scale
            self.hidden_size_per_partition = v_channels * self.num_attention_heads_per_partition

    def forward(self: Any, query: Any, key: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
        return attend(self, query, key.contiguous(), value.contiguous(), *args, **kwargs)

    DotProductAttention.__init__, DotProductAttention.forward = init, forward


PATCH = patch(
    id="local-latent-attention",
    reason="latent attention names the widths of keys and values, which the local layers' attention does not take",
    link="https://github.com/NVIDIA/Megatron-LM/blob/main/megatron/core/transformer/dot_product_attention.py",
    needed=no_transformer_engine,
    apply=_apply,
)
