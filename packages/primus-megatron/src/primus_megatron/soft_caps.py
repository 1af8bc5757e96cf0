"""Soft caps on the logits of a model and of its routers, for which Megatron has no arguments: `cap * tanh(x / cap)`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["cap_logits"]


def cap_logits(model: Any, own: Mapping[str, Any]) -> None:
    """Cap what the model's output layer and the routers in it return, where Primus's own settings say so."""
    if (cap := own.get("final_logit_softcapping")) and getattr(model, "post_process", False):
        model.output_layer.forward = _first_capped(model.output_layer.forward, cap)
    if cap := own.get("router_logit_softcapping"):
        for module in (module for module in model.modules() if hasattr(module, "gating")):
            module.gating = _capped(module.gating, cap)


def _capped(forward: Callable[..., Any], cap: float) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        return _cap(forward(*args, **kwargs), cap)

    return call


def _first_capped(forward: Callable[..., Any], cap: float) -> Callable[..., Any]:
    """The same for a layer that returns its output and a bias."""

    def call(*args: Any, **kwargs: Any) -> Any:
        output, bias = forward(*args, **kwargs)
        return _cap(output, cap), bias

    return call


def _cap(logits: Any, cap: float) -> Any:
    return (logits / cap).tanh() * cap
