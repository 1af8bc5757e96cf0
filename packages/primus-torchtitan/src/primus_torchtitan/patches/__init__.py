"""Adaptations of TorchTitan, one file each; the worker applies those that this machine needs, before it imports more.

Each says why it exists, when it is needed, and for which versions; a test fails when one is no longer needed.
"""

from __future__ import annotations

from importlib.metadata import version

from primus_torchtitan.patches import (
    cpu_attention,
    cpu_device,
    cpu_reduction,
    loss_not_finite,
    torch213_pipeline_buffers,
    torch213_pipeline_step,
    torch213_set_timeout,
    wait_keeps_gradient,
)
from primus_train.kit.patches import Patch, apply_needed

__all__ = ["PATCHES", "apply_all"]

PATCHES: tuple[Patch, ...] = (
    cpu_device.PATCH,  # first: the others import modules that look the device up
    cpu_attention.PATCH,
    cpu_reduction.PATCH,
    torch213_set_timeout.PATCH,
    torch213_pipeline_step.PATCH,
    torch213_pipeline_buffers.PATCH,
    wait_keeps_gradient.PATCH,
    loss_not_finite.PATCH,  # last: it imports the trainer
)
"""In the order in which they are applied."""


def apply_all() -> tuple[Patch, ...]:
    """Apply what this machine and these versions need, and return it."""
    return apply_needed(PATCHES, version("torchtitan"))
