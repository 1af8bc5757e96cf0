"""Adaptations of Megatron, one file each; the worker applies those that this machine needs, before it imports more.

Each says why it exists, when it is needed, and for which versions; a test fails when one is no longer needed.
"""

from __future__ import annotations

from primus_megatron.installation import importable_version
from primus_megatron.patches import (
    changed_hyperparameters,
    chosen_optimizer_state,
    cpu_collectives,
    cpu_device,
    cpu_gated_delta_net,
    cpu_optimizer_step,
    cpu_tensors,
    latent_attention_whole_queries,
    local_expert_biases,
    local_hybrid_layers,
    local_latent_attention,
    local_sequence_parallel,
    non_persistent_retention,
    resumed_distributed_optimizer,
    wheel_without_makefile,
)
from primus_train.kit.patches import Patch, apply_needed

__all__ = ["PATCHES", "apply_all"]

PATCHES: tuple[Patch, ...] = (
    cpu_device.PATCH,  # first: the others import modules that ask for the device
    cpu_tensors.PATCH,
    cpu_collectives.PATCH,
    cpu_optimizer_step.PATCH,
    cpu_gated_delta_net.PATCH,
    wheel_without_makefile.PATCH,
    resumed_distributed_optimizer.PATCH,
    local_latent_attention.PATCH,
    local_hybrid_layers.PATCH,
    latent_attention_whole_queries.PATCH,
    local_sequence_parallel.PATCH,
    local_expert_biases.PATCH,
    changed_hyperparameters.PATCH,
    non_persistent_retention.PATCH,
    chosen_optimizer_state.PATCH,  # last: it imports what the others change
)
"""In the order in which they are applied."""


def apply_all() -> tuple[Patch, ...]:
    """Apply what this machine and these versions need, and return it."""
    return apply_needed(PATCHES, importable_version())
