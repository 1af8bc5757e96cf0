"""Weights of attention in the layout of Hugging Face, with numpy's methods alone."""

from __future__ import annotations

from typing import Any

__all__ = ["in_halves"]


def in_halves(weight: Any, head_dim: int) -> Any:
    """Return rows of heads, whose pairs of the rotary embedding are neighbours, with the two in opposite halves.

    Both are [heads * head_dim, ...]: rows 0, 1, 2, 3 of a head become rows 0, head_dim / 2, 1, head_dim / 2 + 1.
    """
    pairs = weight.reshape(-1, head_dim // 2, 2, *weight.shape[1:])
    return pairs.swapaxes(1, 2).reshape(weight.shape)
