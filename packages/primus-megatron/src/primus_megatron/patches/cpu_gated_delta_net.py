"""Gated delta nets on a CPU: with Megatron's own torch code in the place of the kernels of flash-linear-attention."""

from __future__ import annotations

from typing import Any

from primus_megatron.patches._patch import no_accelerator, patch

__all__ = ["PATCH"]


def _convolve(x: Any, weight: Any, bias: Any = None, activation: str | None = None, **others: Any) -> tuple[Any, None]:
    """Convolve each channel of (batch, sequence, channels) with what came before."""
    import torch.nn.functional as nn

    width = weight.shape[-1]
    mixed = nn.conv1d(nn.pad(x.transpose(1, 2), (width - 1, 0)), weight.unsqueeze(1), bias, groups=x.shape[-1])
    return (nn.silu(mixed) if activation else mixed).transpose(1, 2), None


def _normalize(x: Any) -> Any:
    """Divide by the length of the last dimension."""
    return x * (x.square().sum(-1, keepdim=True) + 1e-6).rsqrt()


def _apply() -> None:
    from megatron.core.ssm.gated_delta_net import common, gdn

    common.HAVE_FLA, common.l2norm = True, _normalize
    gdn.causal_conv1d, gdn.chunk_gated_delta_rule = _convolve, common.torch_chunk_gated_delta_rule


PATCH = patch(
    id="cpu-gated-delta-net",
    reason="the kernels of gated delta nets are written for GPUs",
    link="https://github.com/NVIDIA/Megatron-LM/blob/main/megatron/core/ssm/gated_delta_net/gdn.py",
    needed=no_accelerator,
    apply=_apply,
    since=(0, 19),
)
