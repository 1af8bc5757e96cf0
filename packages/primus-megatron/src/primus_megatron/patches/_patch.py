"""What a patch says about itself, and the conditions that patches share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec

from primus_megatron.installation import importable_version

__all__ = ["Patch", "no_accelerator", "no_fused_optimizer", "no_transformer_engine", "version_pair"]


@dataclass(frozen=True, slots=True)
class Patch:
    """One adaptation of one framework."""

    id: str
    reason: str
    needed: Callable[[], bool]
    """Whether this machine needs it."""
    apply: Callable[[], None]
    link: str = ""
    since: tuple[int, int] = (0, 17)
    before: tuple[int, int] = (0, 20)
    """The versions of megatron-core that it was written for: `since` <= version < `before`."""

    def in_range(self) -> bool:
        """Whether the installed Megatron is one that the patch knows."""
        return self.since <= version_pair(importable_version()) < self.before


def version_pair(text: str) -> tuple[int, int]:
    """`0.19.2` as (0, 19)."""
    major, minor = text.split(".")[:2]
    return int(major), int(minor)


def no_accelerator() -> bool:
    """Whether torch sees nothing but the CPU."""
    import torch

    return not torch.cuda.is_available()


def no_fused_optimizer() -> bool:
    """Whether Megatron's optimizers are torch's, for want of those of Transformer Engine and Apex."""
    return no_transformer_engine() and find_spec("apex") is None


def no_transformer_engine() -> bool:
    """Whether the layers are Megatron's local ones."""
    return find_spec("transformer_engine") is None
