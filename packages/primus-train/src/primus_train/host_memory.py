"""How much memory a training on CPUs takes at least: one that has less is ended by the kernel, and others with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from primus_core.plan.plan import Requirement

__all__ = ["required"]

_WEIGHT, _ADAM = 2, 4
"""Bytes for each parameter at least, in bf16: the weight, and its two moments."""
_LEAST = 1e9
"""So much every machine has, beside the framework itself."""


def required(config: Mapping[str, Any], nodes: int) -> tuple[Requirement, ...]:
    """What each of so many `nodes` needs for the training that a backend planned with `config`; nothing on GPUs."""
    known = config.get("hyperparameters") or {}
    if config.get("device") != "cpu" or not known.get("parameters"):
        return ()
    has_adam = "adam" in str(known.get("optimizer")).lower()
    needed = known["parameters"] * (_WEIGHT + _ADAM * has_adam) / nodes
    if needed < _LEAST:
        return ()
    what = f"its weights{' and optimizer' if has_adam else ''} alone need it on each node, in bf16"
    fix = f"use a smaller model, or train on GPUs or more nodes: {what}"
    return (Requirement("memory", f"{needed / 1e9:.1f} GB", fix),)
