"""Attention on the CPU: torch refuses the backward of FlexAttention there, so SDPA does the same sum."""
# ruff: noqa: SLF001  # the compiled function has no public name, and the mask is kept on the block mask it comes from

from __future__ import annotations

from typing import Any

from primus_torchtitan.patches._patch import no_accelerator, patch

__all__ = ["PATCH"]


def _dense_mask(block_mask: Any, query: Any, key: Any) -> Any:
    """The mask as a tensor of booleans, made once per block mask: all layers of a step share one."""
    from torch.nn.attention.flex_attention import create_mask

    mask = getattr(block_mask, "_primus_dense", None)
    if mask is None:
        batch, heads = block_mask.shape[:2]
        mask = create_mask(block_mask.mask_mod, batch, heads, query.size(2), key.size(2), device=query.device)
        block_mask._primus_dense = mask
    return mask


def sdpa_in_place_of_flex(
    query: Any,
    key: Any,
    value: Any,
    *,
    score_mod: Any,
    block_mask: Any,
    scale: float | None,
    enable_gqa: bool,
    return_aux: Any,
    kernel_options: Any,
) -> tuple[Any, Any]:
    """`flex_attention` for a block mask, without a score function."""
    import torch

    if score_mod is not None:
        raise NotImplementedError("on a CPU, attention takes a mask only: no score function")
    mask = _dense_mask(block_mask, query, key)
    if return_aux.lse:
        return _with_sums(query, key, value, mask, scale or query.size(-1) ** -0.5)
    attend = torch.nn.functional.scaled_dot_product_attention
    return attend(query, key, value, attn_mask=mask, scale=scale, enable_gqa=enable_gqa), None


def _with_sums(query: Any, key: Any, value: Any, mask: Any, scale: float) -> tuple[Any, Any]:
    """Attention with the logarithms of its sums, by which GPT-OSS adds its sinks; SDPA does not give them."""
    from torch.nn.attention.flex_attention import AuxOutput

    shared = query.size(1) // key.size(1)
    key, value = (part.repeat_interleave(shared, dim=1) for part in (key, value))
    scores = (query @ key.transpose(-2, -1)).float() * scale
    scores = scores.masked_fill(~mask, float("-inf"))
    sums = scores.logsumexp(-1)
    return (scores - sums.unsqueeze(-1)).exp().to(value.dtype) @ value, AuxOutput(lse=sums)


def _apply() -> None:
    from torchtitan.models.common.attention import FlexAttention

    FlexAttention._compiled_flex_attn = staticmethod(sdpa_in_place_of_flex)


PATCH = patch(
    id="cpu-attention",
    reason="torch has no backward of flex_attention on CPU (2.13 and 2.14), and TorchTitan 0.3 dropped SDPA for text",
    link="https://docs.pytorch.org/docs/stable/nn.attention.flex_attention.html",
    needed=no_accelerator,
    apply=_apply,
)
