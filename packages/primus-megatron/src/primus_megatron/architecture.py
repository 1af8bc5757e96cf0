"""A model's architecture from Megatron's settings, as far as parameters and FLOPs follow: `translation` undone."""

from __future__ import annotations

import ast
import re
from typing import Any

from primus_megatron.settings import Settings
from primus_megatron.vocabulary import tokens
from primus_train.models.architecture import Architecture, LatentAttention, Mixture

__all__ = ["architecture", "fit_experts"]

_OTHERWISE = (
    "spec", "hybrid_layer_pattern", "experimental_attention_variant", "heterogeneous_layers_config_path",
    "attention_output_gate", "moe_latent_size",
)  # fmt: skip
"""With one of these, layers are others than the catalogue has words for."""


def architecture(settings: Settings) -> Architecture | str:
    """The model of resolved settings, or what of them the catalogue has no words for."""
    if strange := _strange(settings):
        return strange
    latent = settings["multi_latent_attention"]
    heads = settings["num_attention_heads"]
    width = settings["qk_head_dim"] + settings["qk_pos_emb_head_dim"] if latent else settings["kv_channels"]
    biased = settings["add_bias_linear"]
    return Architecture(
        num_layers=settings["num_layers"],
        hidden_size=settings["hidden_size"],
        ffn_hidden_size=_ffn(settings),
        num_attention_heads=heads,
        num_kv_heads=settings["num_query_groups"] if settings["group_query_attention"] else heads,
        head_dim=width or settings["hidden_size"] // heads,
        vocab_size=tokens(settings),
        max_position_embeddings=settings["max_position_embeddings"],
        rope_theta=settings["rotary_base"],
        norm_eps=settings["layernorm_epsilon"],
        tie_embeddings=not settings["untie_embeddings_and_output_weights"],
        qkv_bias=not latent and (biased or settings["add_qkv_bias"]),
        out_bias=biased,
        qk_norm="none" if latent else "rms" if settings["qk_layernorm"] else "l2" if settings["qk_l2_norm"] else "none",
        attn_sinks=settings["softmax_type"] == "learnable",
        moe=_mixture(settings) if settings["num_experts"] else None,
        mla=_latent(settings) if latent else None,
        mtp_layers=settings["mtp_num_layers"] or 0,
        **_window(settings),
    )


def fit_experts(settings: Settings) -> list[str]:
    """Make a pattern of layers with experts as long as the model; what to tell about it.

    Raises:
        ConfigError: it is shorter than the model, or no pattern.
    """
    pattern, layers = _expert_layers(settings), settings["num_layers"]
    if isinstance(given := settings["moe_layer_freq"], str) and " " in given:
        settings.set("moe_layer_freq", given.replace(" ", ""))  # with a space, Megatron takes it for no pattern
    if len(pattern) < layers:
        what = f"'moe_layer_freq' is a pattern of {len(pattern)} layers, and num_layers is {layers}"
        raise settings.error("moe_layer_freq", what, fix="write one item for each layer")
    if len(pattern) == layers:
        return []
    settings.set("moe_layer_freq", [int(layer) for layer in pattern[:layers]])
    return [f"moe_layer_freq describes {len(pattern)} layers; the model uses the first {layers}"]


def _expert_layers(settings: Settings) -> list[bool]:
    """Which layers have experts, for as many as the pattern has."""
    given, layers = settings["moe_layer_freq"], settings["num_layers"]
    try:
        pattern = _value(ast.parse(given, mode="eval").body) if isinstance(given, str) else given
    except (SyntaxError, TypeError, ValueError):
        pattern = None
    if isinstance(pattern, int):
        return [layer % max(pattern, 1) == 0 for layer in range(layers)]
    if isinstance(pattern, list):
        return [bool(layer) for layer in pattern]
    fix = "write a number, or 0 and 1 per layer: [0]*1+[1]*26"
    raise settings.error(
        "moe_layer_freq", f"'moe_layer_freq' is {given!r}", why="it is not a pattern of layers", fix=fix
    )


def _value(node: ast.expr) -> Any:
    """`[0]*3+[1]*58`, as Megatron reads it."""
    if isinstance(node, ast.List):
        return [_value(item) for item in node.elts]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _value(node.left) + _value(node.right)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return _value(node.left) * _value(node.right)
    if isinstance(node, ast.Constant) and isinstance(node.value, int) and node.value < 10_000:
        return node.value
    raise ValueError(ast.dump(node))


def _strange(settings: Settings) -> str:
    """Why the catalogue has no words for it; empty: it has."""
    if not (settings["swiglu"] or settings["quick_geglu"]):
        return "its MLPs have no gate"
    if other := [name for name in _OTHERWISE if settings.knows(name) and settings[name]]:
        return f"it has {', '.join(other)}"
    if not tokens(settings):
        return "vocab_size is not set; for Primus to count them, set it to the tokenizer's number of tokens"
    if isinstance(settings["window_attn_skip_freq"], list | str) and settings["window_size"]:
        return "its windows follow a pattern"
    if settings["num_experts"] and _first_and_step(_expert_layers(settings)) is None:
        return "its experts follow another pattern"
    return ""


def _ffn(settings: Settings) -> int:
    """As given, or as Megatron computes it."""
    hidden = settings["hidden_size"]
    return settings["ffn_hidden_size"] or (int(hidden * 8 / 3) // 64 * 64 if settings["swiglu"] else 4 * hidden)


def _window(settings: Settings) -> dict[str, Any]:
    if not (before := re.search(r"-?\d+", str(settings["window_size"] or ""))):
        return {}
    return {"sliding_window": int(before[0]) + 1, "full_attention_every": settings["window_attn_skip_freq"]}


def _mixture(settings: Settings) -> Mixture:
    first, step = _first_and_step(_expert_layers(settings)) or (0, 1)
    return Mixture(
        num_experts=settings["num_experts"],
        topk=settings["moe_router_topk"],
        moe_ffn_hidden_size=settings["moe_ffn_hidden_size"] or _ffn(settings),
        shared_expert_ffn=settings["moe_shared_expert_intermediate_size"] or 0,
        first_k_dense=first,
        moe_layer_step=step,
        router_bias=settings["add_bias_linear"],
        correction_bias=settings["moe_router_enable_expert_bias"],
        mlp_bias=settings["add_bias_linear"],
    )


def _first_and_step(pattern: list[bool]) -> tuple[int, int] | None:
    """The first layers without experts, and every how manieth of the others has them."""
    if True not in pattern:
        return None
    first = pattern.index(True)
    for dense, step in ((first, 1), (0, first + 1)):
        if pattern == [layer >= dense and (layer + 1) % step == 0 for layer in range(len(pattern))]:
            return dense, step
    return None


def _latent(settings: Settings) -> LatentAttention:
    return LatentAttention(
        q_lora_rank=settings["q_lora_rank"],
        kv_lora_rank=settings["kv_lora_rank"],
        qk_nope_head_dim=settings["qk_head_dim"],
        qk_rope_head_dim=settings["qk_pos_emb_head_dim"],
        v_head_dim=settings["v_head_dim"],
    )
