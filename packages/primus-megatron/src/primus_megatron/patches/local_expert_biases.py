"""Experts with biases in Megatron's local layers, as gpt-oss has them: a sum over one rank is what is summed."""

from __future__ import annotations

from typing import Any

from primus_megatron.patches._patch import no_transformer_engine, patch

__all__ = ["PATCH"]


def _apply() -> None:
    from megatron.core.tensor_parallel import layers, mappings

    reduce = mappings.reduce_from_tensor_model_parallel_region

    def reduced(tensor: Any, group: Any = None) -> Any:
        group = mappings.get_tensor_model_parallel_group_if_none(group)
        return tensor if group.size() == 1 else reduce(tensor, group)

    layers.reduce_from_tensor_model_parallel_region = reduced


PATCH = patch(
    id="local-expert-biases",
    reason="with one tensor-parallel rank, an expert's output is a view to which its bias cannot be added in place",
    link="https://github.com/NVIDIA/Megatron-LM/blob/main/megatron/core/tensor_parallel/mappings.py",
    needed=no_transformer_engine,
    apply=_apply,
)
