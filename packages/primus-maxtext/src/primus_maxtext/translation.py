"""A model of the catalogue in MaxText's own settings, and what MaxText's decoder blocks cannot be.

A decoder block is MaxText's code for a family's layers: each has some traits always, some on request, and no others.
Every setting was compared with what MaxText 0.2.5 does with it; `architecture` is the way back.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from typing import Any, NamedTuple

from primus_core.errors import RequestError
from primus_maxtext.schema import Schema
from primus_train.models.architecture import Architecture, LatentAttention, Mixture, Model, RopeScaling

__all__ = ["BLOCKS", "Block", "lacks", "translate"]

_NAMES = {
    "deepseek_v2_lite": "deepseek2-16b",
    "deepseek_v3": "deepseek3-671b",
    "kimi_k2": "kimi-k2-1t",
    "llama4_maverick_17B128E": "llama4-17b-128e",
}
"""What MaxText calls models of the catalogue, where it is not the same name in its spelling."""
_ROUTES = ("deepseek3", "kimi-k2")
"""With a `model_name` that begins so, MaxText's router has groups, and the bias that balances experts chooses only."""


class Block(NamedTuple):
    """The layers of one family in MaxText."""

    name: str
    always: frozenset[str] = frozenset()
    """Traits that it has whatever the settings are."""
    also: frozenset[str] = frozenset()
    """Traits that settings give it."""
    scores: Container[str] = ()
    """What its router can make weights of."""
    every: int = 0
    """One layer of so many has full attention."""
    repeated: int = 1
    """So many layers are built at once, and the model has a multiple."""
    listed: int = 1
    """So many layers count as one in `base_num_decoder_layers`."""


_EVERYWHERE = frozenset(("attn_softcap",))
_GEMMA = frozenset(("post_norms", "geglu", "windows"))

BLOCKS = {
    block.name: block
    for block in (
        Block("llama2", also=_EVERYWHERE),
        Block("qwen2", frozenset(("qkv_bias",)), frozenset(("qk_norm",))),
        Block("qwen3", frozenset(("qk_norm",))),
        Block("mixtral", frozenset(("experts",)), _EVERYWHERE, ("softmax_topk",)),
        Block("qwen3_moe", frozenset(("experts", "qk_norm")), scores=("softmax_topk",)),
        Block(
            "deepseek",
            frozenset(("experts", "latent")),
            frozenset(("shared", "first_dense", "groups", "scaled", "balanced", "mtp")),
            ("softmax", "sigmoid"),
        ),
        Block("gemma2", _GEMMA, frozenset(("attn_softcap", "logit_softcap")), every=2, repeated=2, listed=2),
        Block("gemma3", _GEMMA | {"qk_norm", "local_base"}, every=6),
        Block(
            "gpt_oss",
            frozenset(("experts", "clamped", "windows")),
            frozenset(("qkv_bias", "out_bias", "sinks", "router_bias", "expert_bias")),
            ("softmax_topk",),
            every=2,
            repeated=2,
        ),
        Block(
            "llama4",
            frozenset(("experts", "chunks", "no_rope", "scores_on_input")),
            frozenset(("shared", "step", "l2_norm")),
            ("sigmoid",),
            every=4,
            repeated=4,
        ),
    )
}


class Lack(NamedTuple):
    """Something that a model has."""

    what: str
    has: Callable[[Architecture], Any]


_TRAITS = {
    "experts": Lack("experts", lambda a: a.moe),
    "latent": Lack("latent attention", lambda a: a.mla),
    "qk_norm": Lack("norms of queries and keys", lambda a: a.qk_norm == "rms"),
    "l2_norm": Lack("norms of queries and keys without a weight", lambda a: a.qk_norm == "l2"),
    "qkv_bias": Lack("biases of queries, keys and values", lambda a: a.qkv_bias),
    "out_bias": Lack("a bias after attention", lambda a: a.out_bias),
    "post_norms": Lack("additional norms after attention and MLP", lambda a: a.norms_per_layer == 4),
    "geglu": Lack("a GELU in its gated MLPs", lambda a: a.activation == "geglu"),
    "clamped": Lack("gpt-oss's activation", lambda a: a.activation == "clamped_swiglu"),
    "sinks": Lack("attention sinks", lambda a: a.attn_sinks),
    "attn_softcap": Lack("a soft cap on attention scores", lambda a: a.attn_softcap),
    "logit_softcap": Lack("a soft cap on logits", lambda a: a.logit_softcap),
    "windows": Lack("attention within windows", lambda a: a.sliding_window),
    "chunks": Lack("attention within chunks", lambda a: a.attention_chunk),
    "local_base": Lack("a rotary base of its own for layers with a window", lambda a: a.rope_theta_local),
    "no_rope": Lack("layers without a rotary embedding", lambda a: not a.full_attention_rope),
    "mtp": Lack("MTP layers", lambda a: a.mtp_layers),
    "shared": Lack("shared experts", lambda a: a.moe and a.moe.shared_expert_ffn),
    "first_dense": Lack("first layers without experts", lambda a: a.moe and a.moe.first_k_dense),
    "step": Lack("experts in some layers only", lambda a: a.moe and a.moe.moe_layer_step > 1),
    "groups": Lack("experts in groups", lambda a: a.moe and a.moe.n_group > 1),
    "scaled": Lack("a factor on what experts give", lambda a: a.moe and a.moe.routed_scaling != 1),
    "balanced": Lack("a bias that balances experts", lambda a: a.moe and a.moe.correction_bias),
    "router_bias": Lack("a bias of the router", lambda a: a.moe and a.moe.router_bias),
    "expert_bias": Lack("biases in its experts", lambda a: a.moe and a.moe.mlp_bias),
    "scores_on_input": Lack("weights on what goes into experts", lambda a: a.moe and a.moe.scores_on_input),
}
_SCORES = {"softmax": "by a softmax over all", "softmax_topk": "by one over the chosen", "sigmoid": "one by one"}


def lacks(a: Architecture) -> list[str]:
    """What of `a` MaxText does not have in one decoder block."""
    block, traits = _block(a), _traits(a)
    found = [_TRAITS[name].what for name in _TRAITS if name in traits - block.always - block.also]
    found += [f"no {_TRAITS[name].what}" for name in _TRAITS if name in block.always - traits]
    return found + list(_unfit(a, block))


def translate(model: Model, schema: Schema) -> dict[str, Any]:
    """The settings that make `model`.

    Raises:
        RequestError: MaxText has no such model.
    """
    facts = model.facts
    if missing := lacks(facts):
        raise RequestError(
            f"MaxText cannot build {model.name}",
            why=f"with layers of '{_block(facts).name}', the nearest match, MaxText lacks {'; '.join(missing)}",
            fix="another backend may have them",
        )
    settings = dict(_settings(facts, _block(facts)))
    if name := _model_name(model, schema.models):
        settings["model_name"] = name
    if facts.hf:
        settings |= {"tokenizer_type": "huggingface", "tokenizer_path": facts.hf}
    if unknown := [name for name in settings if name not in schema.options]:
        what = f"MaxText {schema.version} cannot build {model.name}"
        raise RequestError(what, why=f"it has no {', '.join(unknown)}", fix="install MaxText 0.2.5")
    return settings


def _traits(a: Architecture) -> frozenset[str]:
    return frozenset(name for name, trait in _TRAITS.items() if trait.has(a))


def _block(a: Architecture) -> Block:
    """The decoder block that is the model, or is nearest to it."""
    traits = _traits(a)
    return min(BLOCKS.values(), key=lambda b: len(traits - b.always - b.also) + len(b.always - traits))


def _unfit(a: Architecture, block: Block) -> Iterator[str]:
    """Numbers that the block cannot have."""
    moe = a.moe
    if moe and moe.score not in block.scores:
        yield f"experts weighted {_SCORES[moe.score]}"
    if moe and moe.shared_expert_ffn % moe.moe_ffn_hidden_size:
        yield "shared experts of another width than the others"
    if moe and moe.scores_on_input and moe.topk > 1:
        yield "more than one expert for a token"
    if block.every and a.full_attention_every != block.every:
        yield f"full attention in other layers than every {block.every}th"
    if a.num_layers % block.repeated:
        yield f"{a.num_layers} layers, not a multiple of {block.repeated}"
    if "out_bias" in block.also and a.qkv_bias != a.out_bias:
        yield "biases on one side of attention only"
    if a.logit_softcap and not a.tie_embeddings:
        yield "a soft cap on the logits of a head of its own"
    if not _stretches(a):
        yield "a different scaling of the rotary embedding"


def _stretches(a: Architecture) -> bool:
    """Whether MaxText stretches the rotary embedding as the model does; the numbers of Llama 3.1 stand in its code."""
    s = a.rope_scaling
    if s is None or s.rope_type == "linear":
        return True
    if s.rope_type == "llama3":
        given = (s.factor, s.low_freq_factor, s.high_freq_factor, s.original_max_position)
        return given == (8.0, 1.0, 4.0, 8192) and not a.rope_theta_local
    whole = all(float(number or 0).is_integer() for number in (s.factor, s.beta_fast, s.beta_slow))
    return whole and not a.rope_theta_local and s.mscale == s.mscale_all_dim and (s.mscale is not None) == bool(a.mla)


def _model_name(model: Model, known: Container[str]) -> str:
    """What MaxText calls the model, or one by whose name its code does what the model needs; empty: neither."""
    facts = model.facts
    name = _NAMES.get(model.name, model.name.lower().replace("_", "-"))
    name = name if name in known else ""
    if (moe := facts.moe) and (moe.n_group > 1 or moe.correction_bias):
        return name if name.startswith(_ROUTES) else "deepseek3-671b"
    if facts.rope_theta_local:  # Gemma 3 scales queries by its name, the smaller ones as all others do
        return name or "gemma3-4b"
    return name


Pairs = Iterator[tuple[str, Any]]


def _settings(a: Architecture, block: Block) -> Pairs:
    yield "decoder_block", block.name
    yield "base_num_decoder_layers", a.num_layers // block.listed
    yield "base_emb_dim", a.hidden_size
    yield "base_mlp_dim", _dense_width(a)
    yield "base_num_query_heads", a.num_attention_heads
    yield "base_num_kv_heads", a.num_kv_heads
    yield "vocab_size", a.vocab_size
    yield "normalization_layer_epsilon", a.norm_eps
    yield "enable_dropout", False  # no model of the catalogue was trained with it
    yield "logits_via_embedding", a.tie_embeddings
    if a.tie_embeddings:
        # MaxText's table begins with a deviation of 1: undivided, logits are some sqrt(hidden_size) too large. Gemma,
        # which multiplies embeddings by that, has the product in this table, and is divided for it.
        yield "normalize_embedding_logits", True
    yield from _activation(a)
    yield from _latent(a.mla) if a.mla else _heads(a, block)
    yield from _rotary(a, block)
    yield from _window(a)
    yield from _experts(a.moe, block) if a.moe else ()
    if a.mtp_layers:
        yield "mtp_num_layers", a.mtp_layers


def _dense_width(a: Architecture) -> int:
    """Where every layer has experts, MaxText wants theirs."""
    return (
        a.moe.moe_ffn_hidden_size
        if a.moe and not a.moe.first_k_dense and a.moe.moe_layer_step == 1
        else a.ffn_hidden_size
    )


def _activation(a: Architecture) -> Pairs:
    first = {"swiglu": "silu", "geglu": "gelu", "clamped_swiglu": "sigmoid"}[a.activation]
    yield "mlp_activations", [first, "linear"]
    if a.activation == "clamped_swiglu":
        yield "mlp_activations_limit", 7.0


def _heads(a: Architecture, block: Block) -> Pairs:
    yield "head_dim", a.head_dim
    yield "use_qk_norm", a.qk_norm != "none"
    yield "attention_bias", a.qkv_bias
    yield "attention_sink", a.attn_sinks
    if a.norms_per_layer == 4:
        yield "use_post_attn_norm", True
        yield "use_post_ffw_norm", True
    if a.attn_softcap:
        yield "attn_logits_soft_cap", a.attn_softcap
    if a.logit_softcap:
        yield "final_logits_soft_cap", a.logit_softcap


def _latent(mla: LatentAttention) -> Pairs:
    yield "attention_type", "mla"
    yield "q_lora_rank", mla.q_lora_rank or 0
    yield "kv_lora_rank", mla.kv_lora_rank
    yield "qk_nope_head_dim", mla.qk_nope_head_dim
    yield "qk_rope_head_dim", mla.qk_rope_head_dim
    yield "v_head_dim", mla.v_head_dim


def _rotary(a: Architecture, block: Block) -> Pairs:
    scaling = a.rope_scaling
    kind = scaling.rope_type if scaling else ""
    if block.name == "llama4":  # its weights are in the order of Llama 3.1's, stretched or not
        yield "rope_use_scale", kind == "llama3"
        kind = "llama3"
    yield "rope_type", {"llama3": "llama3.1", "yarn": "yarn"}.get(kind, "default")
    yield "rope_max_timescale", int(a.rope_theta)
    if a.rope_theta_local:
        yield "local_rope_max_timescale", int(a.rope_theta_local)
    yield "rope_linear_scaling_factor", scaling.factor if scaling and kind == "linear" else 1.0
    if scaling and kind == "yarn":
        yield from _yarn(a, scaling)
    elif a.mla:
        yield "rope_factor", 1  # MaxText scales attention for the default, 40, even where nothing is stretched


def _yarn(a: Architecture, scaling: RopeScaling) -> Pairs:
    yield "max_position_embeddings", a.max_position_embeddings
    yield "original_max_position_embeddings", scaling.original_max_position
    yield "rope_factor", int(scaling.factor)
    yield "beta_fast", int(scaling.beta_fast or 32)
    yield "beta_slow", int(scaling.beta_slow or 1)
    yield "rope_truncate", scaling.truncate
    yield "rope_interleave", a.mla is not None
    yield "rope_attention_scaling", not a.mla  # latent attention has it in the scale of its scores, by `mscale`
    if scaling.mscale:
        yield "mscale", scaling.mscale


def _window(a: Architecture) -> Pairs:
    if a.sliding_window:
        yield "sliding_window_size", a.sliding_window
    if a.attention_chunk:
        yield "chunk_attn_window_size", a.attention_chunk
        yield "nope_layer_interval", a.full_attention_every
        yield "temperature_tuning", True


def _experts(moe: Mixture, block: Block) -> Pairs:
    yield "num_experts", moe.num_experts
    yield "num_experts_per_tok", moe.topk
    yield "base_moe_mlp_dim", moe.moe_ffn_hidden_size
    yield "shared_experts", moe.shared_expert_ffn // moe.moe_ffn_hidden_size
    yield "routed_bias", moe.router_bias or moe.correction_bias
    yield "mlp_bias", moe.mlp_bias
    if block.repeated > 1:
        yield "inhomogeneous_layer_cycle_interval", block.repeated
    if block.name == "llama4":
        yield "interleave_moe_layer_step", moe.moe_layer_step
    if block.name == "qwen3_moe":
        yield "norm_topk_prob", True
    if block.name == "deepseek":
        yield from _deepseek(moe)


def _deepseek(moe: Mixture) -> Pairs:
    yield "first_num_dense_layers", moe.first_k_dense
    yield "routed_score_func", moe.score
    yield "routed_scaling_factor", moe.routed_scaling
    if moe.n_group > 1:
        yield "n_routing_groups", moe.n_group
        yield "topk_routing_group", moe.topk_group
