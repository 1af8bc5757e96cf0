"""Adaptations of MaxText, one file each; the worker applies those that are needed, before it imports more.

Each says why it exists, when it is needed, and for which versions; a test fails when one is no longer needed.
"""

from __future__ import annotations

from primus_machine.packages import version_of
from primus_maxtext.patches import (
    foreign_steps,
    installed_assets,
    late_preemption_looks,
    tied_logits_in_bfloat16,
    token_in_tensorboard,
)
from primus_train.kit.patches import Patch, apply_needed

__all__ = ["PATCHES", "apply_all"]

PATCHES: tuple[Patch, ...] = (
    foreign_steps.PATCH,
    installed_assets.PATCH,
    late_preemption_looks.PATCH,
    token_in_tensorboard.PATCH,
    tied_logits_in_bfloat16.PATCH,
)
"""In the order in which they are applied."""


def apply_all() -> tuple[Patch, ...]:
    """Apply what this machine and this version need, and return it."""
    return apply_needed(PATCHES, version_of("maxtext"))
