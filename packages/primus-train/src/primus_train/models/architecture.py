"""The facts of a model's architecture as data, in no framework's words. Backends translate them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Literal, NamedTuple

__all__ = ["Architecture", "Entry", "LatentAttention", "Mixture", "Model", "RopeScaling", "Wrong", "impossible"]

Size = Annotated[int, ("gt", 0)]
Count = Annotated[int, ("ge", 0)]
Positive = Annotated[float, ("gt", 0), ("allow_inf_nan", False)]


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeScaling:
    """How the rotary embedding is stretched beyond the length that it was trained on."""

    rope_type: Literal["llama3", "yarn", "linear"]
    factor: Positive
    original_max_position: Size | None = None
    low_freq_factor: Positive | None = None
    high_freq_factor: Positive | None = None
    beta_fast: Positive | None = None
    beta_slow: Positive | None = None
    truncate: bool = True
    """Whether `yarn` rounds where its ramp begins and ends to whole dimensions."""
    mscale: Positive | None = None
    mscale_all_dim: Positive | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixture:
    """Mixture of experts."""

    num_experts: Size
    topk: Size
    moe_ffn_hidden_size: Size
    shared_expert_ffn: Count = 0
    """Width of all shared experts together; 0: there is none."""
    first_k_dense: Count = 0
    moe_layer_step: Size = 1
    """Every so manieth layer has experts: 2 means the second, the fourth, ..."""
    score: Literal["softmax", "sigmoid", "softmax_topk"] = "softmax"
    """What makes weights of the router's numbers.

    `softmax_topk`: over the chosen experts only, which is the same as `softmax` divided by the sum of the chosen.
    """
    n_group: Size = 1
    topk_group: Size = 1
    routed_scaling: Positive = 1.0
    router_bias: bool = False
    correction_bias: bool = False
    """A bias per expert that balances them without a loss (DeepSeek V3). A rule moves it; it is stored and counted."""
    mlp_bias: bool = False
    scores_on_input: bool = False
    """The router's weight multiplies what goes into an expert, and not what comes out (Llama 4)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentAttention:
    """Multi-head latent attention (MLA), as DeepSeek V2 brought it."""

    q_lora_rank: Size | None = None
    kv_lora_rank: Size
    qk_nope_head_dim: Size
    qk_rope_head_dim: Size
    v_head_dim: Size


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """A decoder of text. What is not said is the usual: RMSNorm, a gated MLP with SiLU, no biases."""

    num_layers: Size
    hidden_size: Size
    ffn_hidden_size: Size
    """Width of a dense layer's MLP."""
    num_attention_heads: Size
    num_kv_heads: Size
    head_dim: Size
    vocab_size: Size
    max_position_embeddings: Size
    rope_theta: Positive
    norm_eps: Positive
    tie_embeddings: bool
    activation: Literal["swiglu", "geglu", "clamped_swiglu"] = "swiglu"
    """`clamped_swiglu` is gpt-oss's: (up + 1) * gate * sigmoid(1.702 gate), both clamped at 7."""
    rope_theta_local: Positive | None = None
    """Of the layers with a window, where it differs."""
    rope_scaling: RopeScaling | None = None
    qkv_bias: bool = False
    out_bias: bool = False
    qk_norm: Literal["none", "rms", "l2"] = "none"
    """`rms`: per head, with a weight; `l2`: without one."""
    norms_per_layer: Literal[2, 4] = 2
    """4: after attention and MLP too (Gemma, Grok)."""
    attn_sinks: bool = False
    attn_softcap: Positive | None = None
    logit_softcap: Positive | None = None
    sliding_window: Size | None = None
    attention_chunk: Size | None = None
    """Tokens see those of their own chunk only (Llama 4)."""
    full_attention_every: Size | None = None
    """With a window or chunks: every so manieth layer sees everything."""
    full_attention_rope: bool = True
    """Whether these layers have a rotary embedding. Llama 4's have none, and no norm of queries and keys."""
    moe: Mixture | None = None
    mla: LatentAttention | None = None
    mtp_layers: Count = 0
    """Layers that predict further tokens; their parameters count apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry(Architecture):
    """What a catalogue file says of one model."""

    source: Annotated[list[str], ("min_length", 1)]
    """Where the facts are from, and what they were compared with."""
    hf: str = ""
    """Its repository on huggingface.co."""
    parameters: Size | None = None
    """The known number, to the unit; `primus models check` compares."""
    parameters_active: Size | None = None
    """Those that work on one token, with embedding and head."""
    published: str = ""
    """The numbers as its authors round them."""
    aliases: list[str] = field(default_factory=list)
    note: str = ""


@dataclass(frozen=True, slots=True)
class Model:
    """One model of the catalogue."""

    name: str
    family: str
    origin: str
    """`Primus`, `acme-primus 2.1.0`, or the path of a person's file."""
    where: str
    """File and line."""
    facts: Entry

    @property
    def kind(self) -> str:
        """For people: `dense`, `MoE 8 of 256, MLA`."""
        moe, mla = self.facts.moe, self.facts.mla
        words = [f"MoE {moe.topk} of {moe.num_experts}" if moe else "dense"] + ["MLA"] * (mla is not None)
        return ", ".join(words)


class Wrong(NamedTuple):
    """Facts that no model can have together."""

    key: tuple[str, ...]
    what: str
    fix: str


def impossible(facts: Architecture) -> Iterator[Wrong]:
    """What in `facts` cannot be."""
    heads, kv = facts.num_attention_heads, facts.num_kv_heads
    if heads % kv:
        yield Wrong(("num_kv_heads",), f"{heads} heads cannot share {kv} heads of keys and values", "let it divide")
    if facts.head_dim % 2:
        fix = "the rotary embedding needs an even width"
        yield Wrong(("head_dim",), f"a head is {facts.head_dim} wide", fix)
    if facts.sliding_window and facts.attention_chunk:
        yield Wrong(("attention_chunk",), "attention has a window and chunks", "keep sliding_window or attention_chunk")
    if facts.full_attention_every and not (facts.sliding_window or facts.attention_chunk):
        fix = "set sliding_window, too, or remove it"
        yield Wrong(("full_attention_every",), "without a window, every layer has full attention", fix)
    yield from _impossible_mixture(facts)
    if (mla := facts.mla) and facts.head_dim != mla.qk_nope_head_dim + mla.qk_rope_head_dim:
        sum_ = f"{mla.qk_nope_head_dim} + {mla.qk_rope_head_dim}"
        fix = f"head_dim is qk_nope_head_dim + qk_rope_head_dim, {sum_}"
        yield Wrong(("head_dim",), f"a head of queries is {facts.head_dim} wide, and its parts {sum_}", fix)


def _impossible_mixture(facts: Architecture) -> Iterator[Wrong]:
    if not (moe := facts.moe):
        return
    if moe.router_bias and moe.correction_bias:
        yield Wrong(("moe", "router_bias"), "the router has two biases", "keep router_bias or correction_bias")
    if moe.topk > moe.num_experts:
        yield Wrong(("moe", "topk"), f"{moe.topk} of {moe.num_experts} experts", "choose no more than there are")
    if moe.num_experts % moe.n_group:
        fix = "let n_group divide num_experts"
        yield Wrong(("moe", "n_group"), f"{moe.num_experts} experts do not make {moe.n_group} equal groups", fix)
    if moe.topk_group > moe.n_group:
        fix = "choose no more than there are"
        yield Wrong(("moe", "topk_group"), f"{moe.topk_group} of {moe.n_group} groups", fix)
    if moe.first_k_dense >= facts.num_layers:
        what = f"{moe.first_k_dense} dense layers of {facts.num_layers} leave none with experts"
        yield Wrong(("moe", "first_k_dense"), what, "remove `moe:`, or lower it")
