"""A model of the catalogue in Megatron's own arguments, and what its GPT model cannot be.

Each argument was compared with what `megatron.core` does with it, 0.17 to 0.19; `architecture` is the way back.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from typing import Any, NamedTuple

from primus_core.errors import RequestError
from primus_train.models.architecture import Architecture, LatentAttention, Mixture, Model, RopeScaling

__all__ = ["lacks", "translate"]

_YARN = (4096, 32.0, 1.0)
"""`MLATransformerConfig` has these, and no argument for them: original length, fast and slow beta."""


class Lack(NamedTuple):
    """Something that Megatron's GPT model does not have."""

    what: str
    has: Callable[[Architecture], Any]
    """Whether an architecture has it."""


_LACKS = (
    Lack("a GELU in its gated MLPs (Megatron has SwiGLU and QuickGEGLU)", lambda a: a.activation == "geglu"),
    Lack("additional norms after attention and MLP", lambda a: a.norms_per_layer != 2),
    Lack("a soft cap on attention scores", lambda a: a.attn_softcap),
    Lack("a soft cap on logits", lambda a: a.logit_softcap),
    Lack("a rotary base of its own for layers with a window", lambda a: a.rope_theta_local),
    Lack("biases in some linear layers and not in others", lambda a: _biases(a) == "some"),
    Lack("a scaling of the rotary embedding with other factors", lambda a: a.rope_scaling and not _stretches(a)),
)


def lacks(a: Architecture) -> list[str]:
    """What of `a` Megatron does not have."""
    return [lack.what for lack in _LACKS if lack.has(a)]


def translate(model: Model, version: str, known: Container[str]) -> dict[str, Any]:
    """The settings of Megatron `version`, which has the `known` ones, that make `model`.

    Raises:
        RequestError: Megatron has no such model.
    """
    facts = model.facts
    if missing := lacks(facts):
        raise RequestError(
            f"Megatron cannot build {model.name}",
            why=f"the model has {'; '.join(missing)}",
            fix="another backend may have them, or write its settings out with a layer specification (`spec`) of yours",
        )
    settings = dict(_settings(facts))
    if facts.hf:
        settings["tokenizer_model"] = facts.hf
    if unknown := [name for name in settings if name not in known]:
        raise RequestError(
            f"Megatron {version} cannot build {model.name}",
            why=f"it has no {', '.join(unknown)}",
            fix="install a newer megatron-core",
        )
    return settings


Pairs = Iterator[tuple[str, Any]]


def _settings(a: Architecture) -> Pairs:
    yield "num_layers", a.num_layers
    yield "hidden_size", a.hidden_size
    yield "ffn_hidden_size", a.ffn_hidden_size
    yield "num_attention_heads", a.num_attention_heads
    yield "vocab_size", a.vocab_size
    yield "max_position_embeddings", min(a.max_position_embeddings, a.attention_chunk or a.max_position_embeddings)
    yield "untie_embeddings_and_output_weights", not a.tie_embeddings
    yield "normalization", "RMSNorm"
    yield "norm_epsilon", a.norm_eps  # Primus's name: an experiment may say either, and the other must not win
    yield "add_bias_linear", _biases(a) == "all"
    if a.qkv_bias:
        yield "add_qkv_bias", True
    yield "attention_dropout", 0.0  # Megatron's default is 0.1; no model of the catalogue was trained with it
    yield "hidden_dropout", 0.0
    yield from _activation(a)
    yield from _latent(a, a.mla) if a.mla else _heads(a)
    yield from _rotary(a)
    yield from _window(a)
    yield from _experts(a, a.moe) if a.moe else ()
    if a.mtp_layers:
        yield "mtp_num_layers", a.mtp_layers


def _activation(a: Architecture) -> Pairs:
    if a.activation == "swiglu":
        yield "swiglu", True
        return
    yield "quick_geglu", True  # x * sigmoid(1.702 x)
    yield "glu_linear_offset", 1.0
    yield "activation_func_clamp_value", 7.0


def _heads(a: Architecture) -> Pairs:
    yield "kv_channels", a.head_dim
    if a.num_kv_heads != a.num_attention_heads:
        yield "group_query_attention", True
        yield "num_query_groups", a.num_kv_heads
    if a.qk_norm == "rms":
        yield "qk_layernorm", True
    if a.qk_norm == "l2":
        yield "qk_l2_norm", True
    if a.attn_sinks:
        yield "softmax_type", "learnable"


def _latent(a: Architecture, mla: LatentAttention) -> Pairs:
    yield "multi_latent_attention", True
    if mla.q_lora_rank:
        yield "q_lora_rank", mla.q_lora_rank
    yield "kv_lora_rank", mla.kv_lora_rank
    yield "qk_head_dim", mla.qk_nope_head_dim
    yield "qk_pos_emb_head_dim", mla.qk_rope_head_dim
    yield "v_head_dim", mla.v_head_dim
    yield "qk_layernorm", True  # here: of the latents


def _rotary(a: Architecture) -> Pairs:
    scaling = a.rope_scaling
    yield "position_embedding_type", "yarn" if scaling and scaling.rope_type == "yarn" and not a.mla else "rope"
    yield "rotary_base", int(a.rope_theta)
    if a.mla:
        yield "rope_type", "yarn" if scaling else "rope"  # MLA's own default is yarn
    if scaling is None:
        return
    if scaling.rope_type == "llama3":
        yield "use_rope_scaling", True
        yield "rope_scaling_factor", scaling.factor
        yield "rope_low_freq_factor", scaling.low_freq_factor
        yield "rope_high_freq_factor", scaling.high_freq_factor
        yield "rope_original_max_position", scaling.original_max_position
    elif scaling.rope_type == "linear":
        yield "rotary_seq_len_interpolation_factor", int(scaling.factor)
    else:
        yield from _yarn(scaling, latent=a.mla is not None)


def _yarn(scaling: RopeScaling, *, latent: bool) -> Pairs:
    yield "rotary_scaling_factor", scaling.factor
    if scaling.mscale is not None:
        yield "mscale", scaling.mscale
    if scaling.mscale_all_dim is not None:
        yield "mscale_all_dim", scaling.mscale_all_dim
    if latent:
        return
    yield "yarn_original_max_position_embeddings", scaling.original_max_position
    yield "yarn_beta_fast", scaling.beta_fast
    yield "yarn_beta_slow", scaling.beta_slow
    yield "yarn_correction_range_round_to_int", scaling.truncate


def _window(a: Architecture) -> Pairs:
    if a.sliding_window:
        yield "window_size", f"{a.sliding_window - 1},0"  # tokens before and after it that a token sees
        if a.full_attention_every:
            yield "window_attn_skip_freq", a.full_attention_every
    if not a.full_attention_rope:
        yield "no_rope_freq", a.full_attention_every


def _experts(a: Architecture, moe: Mixture) -> Pairs:
    yield "num_experts", moe.num_experts
    yield "moe_router_topk", moe.topk
    yield "moe_ffn_hidden_size", moe.moe_ffn_hidden_size
    if moe.shared_expert_ffn:
        yield "moe_shared_expert_intermediate_size", moe.shared_expert_ffn
    if pattern := _pattern(a, moe):
        yield "moe_layer_freq", pattern
    if moe.score == "sigmoid":
        yield "moe_router_score_function", "sigmoid"
    if moe.score == "softmax":
        yield "moe_router_pre_softmax", True  # Megatron's default is the softmax over the chosen
    if moe.n_group > 1:
        yield "moe_router_num_groups", moe.n_group
        yield "moe_router_group_topk", moe.topk_group
    if moe.scores_on_input:
        yield "moe_apply_probs_on_input", True
    if moe.routed_scaling != 1:
        yield "moe_router_topk_scaling_factor", moe.routed_scaling
    if moe.correction_bias:
        yield "moe_router_enable_expert_bias", True


def _pattern(a: Architecture, moe: Mixture) -> str | list[int]:
    """Which layers have experts, as Megatron's pattern; empty: all. Its plain number begins with experts, ours ends."""
    step, dense = moe.moe_layer_step, moe.first_k_dense
    if step == 1:
        return f"[0]*{dense}+[1]*{a.num_layers - dense}" if dense else ""
    return [int(layer >= dense and (layer + 1) % step == 0) for layer in range(a.num_layers)]


def _biases(a: Architecture) -> str:
    """In which linear layers but those of queries, keys and values: `none`, `all`, or `some`."""
    moe = a.moe
    found = {a.out_bias, *((moe.mlp_bias, moe.router_bias) if moe else (False,))}
    if found == {False}:
        return "none"
    return "all" if found == {True} and a.qkv_bias and moe and not moe.first_k_dense and not a.mla else "some"


def _stretches(a: Architecture) -> bool:
    """Whether Megatron stretches the rotary embedding as the model does."""
    s = a.rope_scaling
    if s is None or s.rope_type == "linear":
        return s is None or (s.factor.is_integer() and not a.mla)
    if s.rope_type == "llama3":
        return not a.mla
    return not a.mla or (s.original_max_position, s.beta_fast, s.beta_slow) == _YARN
