"""Primus-Turbo, AMD's kernels: what can be asked of it, and its attention in the place of that of Megatron's layers."""

from __future__ import annotations

from typing import Any

from primus_core.plan.plan import Requirement
from primus_megatron.settings import Settings

__all__ = ["check_turbo", "with_turbo_attention"]

_PACKAGE = "primus_turbo"
_EXPERTS = ("use_turbo_grouped_mlp", "use_turbo_grouped_gemm")
"""Two names of one setting, of which AMD's Primus has the second one now."""
_LACKS = {
    "attention_dropout": "does not support dropout",
    "context_parallel_size": "supports only whole sequences",
    "reset_attention_mask": "does not support document boundaries",
    "window_size": "does not support windows",
}
"""What its attention, as it is connected here, does not do."""


def check_turbo(settings: Settings) -> tuple[list[Requirement], list[str]]:
    """What its settings need, and what to tell about them. What is not connected here only changes the speed.

    Raises:
        ConfigError: its attention is asked for, and not enabled.
    """
    asked = [name for name in ("use_turbo_attention", *_EXPERTS) if settings[name]]
    if not settings["enable_primus_turbo"]:
        if "enable_primus_turbo" in settings:
            for name in asked:
                settings.set(name, False)  # by which the worker builds the layers
            return [], [f"{name} is ignored: enable_primus_turbo is false" for name in asked]
        for name in asked:
            raise settings.error(name, f"'{name}' needs enable_primus_turbo: true")
        return [], []
    notes = [f"{name} is ignored: {_why_not(settings)}" for name in _EXPERTS if settings[name]]
    if settings["use_turbo_attention"] and (lacks := _lacks(settings)):
        settings.set("use_turbo_attention", False)
        notes.append(f"use_turbo_attention is ignored: {lacks}; Megatron's own computes the same")
    if not settings["use_turbo_attention"]:
        return [], notes
    return [Requirement("module", _PACKAGE, "install Primus-Turbo, or set enable_primus_turbo: false")], notes


def _why_not(settings: Settings) -> str:
    return "Megatron's own grouped GEMM computes the same" if settings["num_experts"] else "the model has no experts"


def _lacks(settings: Settings) -> str:
    """Say which setting Primus-Turbo's attention does not support; empty: none."""
    for name, why in _LACKS.items():
        value = settings[name]
        if value and not (name == "context_parallel_size" and value == 1):
            return f"'{name}' is {value}, and Primus-Turbo's attention {why}"
    sinks = settings.knows("softmax_type") and settings["softmax_type"] != "vanilla"
    return "Primus-Turbo's attention is not connected with sinks" if sinks else ""


def with_turbo_attention(layers: Any) -> Any:
    """Megatron's specification of the layers, with this attention."""
    attention = _attention()
    for layer in layers.layer_specs:
        layer.submodules.self_attention.submodules.core_attention = attention
    return layers


def _attention() -> type:
    import torch
    from megatron.core.transformer.enums import AttnMaskType
    from primus_turbo.pytorch.ops import flash_attn_func

    class TurboAttention(torch.nn.Module):  # type: ignore[misc]  # torch's types are not read
        """Megatron's (sequence, batch, heads, width), through a kernel that takes (batch, sequence, heads, width)."""

        def __init__(
            self,
            config: Any,
            layer_number: int,
            attn_mask_type: Any,
            attention_type: str,
            softmax_scale: float | None = None,
            **others: Any,
        ) -> None:
            super().__init__()
            self.mask, self.softmax_scale = attn_mask_type, softmax_scale
            self.deterministic = config.deterministic_mode

        def forward(
            self, query: Any, key: Any, value: Any, mask: Any = None, attn_mask_type: Any = None, **others: Any
        ) -> Any:
            out = flash_attn_func(
                *(part.contiguous().transpose(0, 1) for part in (query, key, value)),
                dropout_p=0.0,
                softmax_scale=self.softmax_scale,
                causal=(attn_mask_type or self.mask) is AttnMaskType.causal,
                deterministic=self.deterministic,
            )
            return out.transpose(0, 1).flatten(2)

    return TurboAttention
