"""Small models of TorchTitan's families with experts, for `verify`. Runs in the worker: it imports TorchTitan.

Its flavors are named `deepseek_v3 671B layers=4 heads=4 groups=4 experts=4`. They have what sets that flavor apart
(routing, latent attention, rotary embedding), with few and narrow layers: TorchTitan's own smallest take minutes a step
on a CPU.
"""
# ruff: noqa: SLF001  # TorchTitan has no public names for its initial values and layer builders

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

__all__ = ["FAMILIES", "FIXED_HEADS", "GROUPS_OF_EXPERTS", "SmallModel", "facts", "model_registry"]

FAMILIES = ("qwen3", "deepseek_v3", "gpt_oss")
FIXED_HEADS = {"gpt_oss": (64, 8)}
"""Heads, and groups of them, that a family's builder sets itself."""
GROUPS_OF_EXPERTS = 2
"""Of a model that chooses groups first."""
_WIDTH, _TOP = 64, 2
_HEAD, _ROTARY, _RANK = 16, 8, 32
_VOCABULARY = 512
_NAME = re.compile(r"(?P<family>\w+) (?P<flavor>\S+) layers=(\d+) heads=(\d+) groups=(\d+) experts=(\d+)")


class SmallModel(NamedTuple):
    """The numbers that layouts divide, and the flavor of TorchTitan that it is like."""

    family: str
    flavor: str
    layers: int
    heads: int
    groups: int
    """Of heads that share keys and values; latent attention has as many as heads."""
    experts: int

    def named(self) -> str:
        """Return the name that `model_registry` takes."""
        sizes = (f"{name}={value}" for name, value in self._asdict().items() if isinstance(value, int))
        return " ".join((self.family, self.flavor, *sizes))


def _parse(name: str) -> SmallModel | None:
    found = _NAME.fullmatch(name)
    return SmallModel(found[1], found[2], *map(int, found.groups()[2:])) if found else None


def facts(name: str) -> dict[str, int]:
    """Return what is checked before a start, as the schema has it of TorchTitan's own flavors."""
    small = _parse(name)
    return {"dim": _WIDTH, "n_layers": small.layers, "n_heads": small.heads, "n_kv_heads": small.groups,
            "vocab_size": _VOCABULARY, "experts": small.experts} if small else {}  # fmt: skip


def model_registry(flavor: str, attn_backend: str = "flex") -> Any:
    """Return the `ModelSpec` of a small model by its name.

    Sample:
        model_registry("qwen3 30B-A3B layers=4 heads=4 groups=2 experts=4").model.dim == 64
    """
    import importlib

    small = _parse(flavor)
    assert small, flavor
    family = importlib.import_module(f"torchtitan.models.{small.family}")
    spec = family.model_registry(small.flavor, attn_backend=attn_backend)
    _compute_in_float32(spec.model.layers[-1].moe.routed_experts.inner_experts)
    build = {"qwen3": _qwen3, "deepseek_v3": _deepseek, "gpt_oss": _gpt_oss}[small.family]
    layers = build(family, spec.model, small, attn_backend)
    return dataclasses.replace(spec, flavor=f"{small.flavor}-small", model=_narrow(family, spec.model, layers))


def _compute_in_float32(experts: Any) -> None:
    """Make experts multiply in float32: TorchTitan casts to bfloat16, whatever the model's precision is.

    Rounding depends on which tokens an expert gets together, and so on the layout (pytorch/torchtitan#2235).
    """
    import torch

    owner: Any = type(experts)._owner
    forward = owner.forward

    @functools.wraps(forward)
    def in_float32(*args: Any, **kwargs: Any) -> Any:
        kept: Any = torch.Tensor.bfloat16
        torch.Tensor.bfloat16 = torch.Tensor.float
        try:
            return forward(*args, **kwargs)
        finally:
            torch.Tensor.bfloat16 = kept

    owner.forward = in_float32


def _narrow(family: Any, whole: Any, layers: list[Any]) -> Any:
    """The model around small layers."""
    embedding = dataclasses.replace(whole.tok_embeddings, num_embeddings=_VOCABULARY, embedding_dim=_WIDTH)
    head = dataclasses.replace(whole.lm_head, in_features=_WIDTH, out_features=_VOCABULARY)
    if hasattr(family, "_output_linear_init"):
        head = dataclasses.replace(head, param_init=family._output_linear_init(_WIDTH))
    norm = dataclasses.replace(whole.norm, normalized_shape=_WIDTH)
    return dataclasses.replace(whole, vocab_size=_VOCABULARY, dim=_WIDTH, tok_embeddings=embedding, norm=norm,
                               lm_head=head, layers=layers)  # fmt: skip


def _qwen3(family: Any, whole: Any, small: SmallModel, attention: str) -> list[Any]:
    rope = dataclasses.replace(whole.layers[0].attention.rope, dim=_HEAD)
    layers: list[Any] = family._build_qwen3_moe_layers(
        n_layers=small.layers, dim=_WIDTH, n_heads=small.heads, n_kv_heads=small.groups, head_dim=_HEAD,
        moe_hidden_dim=_WIDTH, num_experts=small.experts, top_k=_TOP, attn_backend=attention,
        moe_comm_backend="standard", rope=rope,
    )  # fmt: skip
    return layers


def _deepseek(family: Any, whole: Any, small: SmallModel, attention: str) -> list[Any]:
    given, experts = whole.layers[0].attention, whole.layers[-1].moe
    layers: list[Any] = family._build_dsv3_layers(
        n_layers=small.layers, n_dense_layers=1, dim=_WIDTH, n_heads=small.heads,
        q_lora_rank=min(given.q_lora_rank, _RANK), kv_lora_rank=_RANK, qk_nope_head_dim=_HEAD,
        qk_rope_head_dim=_ROTARY, v_head_dim=_HEAD, mscale=given.mscale,
        dense_hidden_dim=2 * _WIDTH, moe_hidden_dim=_WIDTH, num_experts=small.experts, num_shared_experts=1,
        router_top_k=_TOP, **_routing(experts.router), attn_backend=attention, moe_comm_backend="standard",
        non_blocking_capacity_factor=None, rope=dataclasses.replace(given.rope, dim=_ROTARY),
    )  # fmt: skip
    return layers


def _routing(router: Any) -> Mapping[str, Any]:
    groups = router.num_expert_groups
    return {
        "router_score_func": router.score_func, "router_route_scale": router.route_scale,
        "router_route_norm": router.route_norm, "router_num_expert_groups": groups and GROUPS_OF_EXPERTS,
        "router_num_limited_groups": groups and 1,
    }  # fmt: skip


def _gpt_oss(family: Any, whole: Any, small: SmallModel, attention: str) -> list[Any]:
    """Its builder fixes the heads."""
    layers: list[Any] = family._build_gptoss_layers(
        n_layers=small.layers, dim=_WIDTH, hidden_dim=_WIDTH, num_experts=small.experts, top_k=_TOP,
        attn_backend=attention, load_balance_coeff=whole.layers[0].moe.load_balance_coeff, moe_comm_backend="standard",
        rope=whole.layers[0].attention.rope,
    )  # fmt: skip
    return layers
