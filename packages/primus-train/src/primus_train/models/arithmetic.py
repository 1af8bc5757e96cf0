"""Parameters and FLOPs per token of an architecture, as sums over its matrices.

The counts of parameters equal those of the models of Hugging Face transformers; the FLOPs are those of Megatron-LM's
`num_floating_point_operations`, and of the PaLM paper's appendix B, with windows and the projection of MTP counted too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from primus_train.models.architecture import Architecture

__all__ = [
    "Counts",
    "Matrix",
    "expert_layers",
    "flops_per_token",
    "full_attention_layers",
    "matrices",
    "matrices_of_training",
    "parameters",
]

_UNCOUNTED = ("router",)
"""Parts whose FLOPs nobody counts: they would change the last digits of an MFU that others publish too."""


class Matrix(NamedTuple):
    """A linear layer, of which a model has several alike."""

    part: str
    name: str
    inputs: int
    outputs: int
    stored: int
    """How often a model has it. 0: it is the embedding once more."""
    used: int
    """How many of those a token passes."""
    bias: bool = False
    norm: bool = False
    """Its input is normalised by a weight of its own (the latents of MLA)."""

    @property
    def weights(self) -> int:
        """Parameters of one that FLOPs are counted for, the norm's too: so does Megatron-LM."""
        return self.inputs * self.outputs + self.inputs * self.norm

    @property
    def size(self) -> int:
        """Parameters of one."""
        return self.weights + self.outputs * self.bias


@dataclass(frozen=True, slots=True)
class Counts:
    """Parameters of a model by part. Those of MTP layers stand apart: publishers leave them out."""

    parts: Mapping[str, int]
    active: int
    """Those that work on one token, with the embedding whole."""
    mtp: int

    @property
    def total(self) -> int:
        """All but those of MTP layers."""
        return sum(self.parts.values())


def expert_layers(a: Architecture) -> int:
    """How many layers have experts."""
    if not a.moe:
        return 0
    return sum((layer + 1) % a.moe.moe_layer_step == 0 for layer in range(a.moe.first_k_dense, a.num_layers))


def full_attention_layers(a: Architecture) -> int:
    """How many layers see everything before them."""
    if not (a.sliding_window or a.attention_chunk):
        return a.num_layers
    return a.num_layers // a.full_attention_every if a.full_attention_every else 0


def matrices(a: Architecture) -> tuple[Matrix, ...]:
    """Every matrix of the model, MTP layers left out."""
    with_experts = expert_layers(a)
    head = Matrix("head", "head", a.hidden_size, a.vocab_size, 0 if a.tie_embeddings else 1, 1)
    return (*_attention(a, a.num_layers), *_dense(a, a.num_layers - with_experts), *_experts(a, with_experts), head)


def matrices_of_training(a: Architecture) -> tuple[Matrix, ...]:
    """Every matrix that a token passes in training, those of MTP layers too, each name once."""
    found: dict[str, Matrix] = {}
    for one in (*matrices(a), *_mtp(a)):
        same = found.get(one.name, one._replace(stored=0, used=0))
        found[one.name] = same._replace(stored=same.stored + one.stored, used=same.used + one.used)
    return tuple(found.values())


def parameters(a: Architecture) -> Counts:
    """How many parameters the model has.

    Per layer: attention h·d(n+2k) + n·d·h and its biases (with MLA: q(h + n(dn+dr) + 1) + h(c+dr) +
    c(n(dn+dv) + 1) + n·dv·h); MLP 3hf; experts E·3hf + hE; norms. Source: transformers' `modeling_llama`,
    `modeling_mixtral`, `modeling_deepseek_v3`, `modeling_gpt_oss`, `modeling_gemma3`.
    """
    parts = {"embedding": a.vocab_size * a.hidden_size}
    active = parts["embedding"]
    for matrix in matrices(a):
        parts[matrix.part] = parts.get(matrix.part, 0) + matrix.stored * matrix.size
        active += min(matrix.stored, matrix.used) * matrix.size
    vectors = {"norms": a.num_layers * _norms(a) + a.hidden_size}
    if a.attn_sinks:
        vectors["sinks"] = a.num_layers * a.num_attention_heads
    found = {part: count for part, count in {**parts, **vectors}.items() if count}
    return Counts(found, active + sum(vectors.values()), _mtp_parameters(a))


def flops_per_token(a: Architecture, seq_length: int) -> dict[str, int]:
    """FLOPs of forward and backward for one token of a sequence, by part.

    A multiplication and an addition per weight forward, twice that backward: 6 per weight that the token passes, the
    head once per predicted token. Attention itself: 6·2·n·d per token that it sees (MLA: 6·n(dn+dr+dv)), on average
    half the sequence. Source: Megatron-LM, `megatron/training/training.py`, `num_floating_point_operations`; PaLM,
    https://arxiv.org/abs/2204.02311, appendix B. Router, norms (but for those of MLA's latents)
    and recomputation are not counted.
    """
    parts: dict[str, int] = {}
    for matrix in matrices_of_training(a):
        if matrix.part not in _UNCOUNTED:
            parts[matrix.part] = parts.get(matrix.part, 0) + 6 * matrix.used * matrix.weights
    parts["scores"] = _scores(a, seq_length)
    return {part: work for part, work in parts.items() if work}


def _attention(a: Architecture, layers: int) -> Sequence[Matrix]:
    h, n, d, k = a.hidden_size, a.num_attention_heads, a.head_dim, a.num_kv_heads

    def row(name: str, inputs: int, outputs: int, *, bias: bool = False, norm: bool = False) -> Matrix:
        return Matrix("attention", name, inputs, outputs, layers, layers, bias, norm)

    if not (mla := a.mla):
        return row("qkv", h, d * (n + 2 * k), bias=a.qkv_bias), row("attention-out", n * d, h, bias=a.out_bias)
    q, c, values = mla.q_lora_rank, mla.kv_lora_rank, n * mla.v_head_dim
    query = [row("q-down", h, q), row("q-up", q, n * d, norm=True)] if q else [row("q", h, n * d)]
    return (
        *query,
        row("kv-down", h, c + mla.qk_rope_head_dim),
        row("kv-up", c, n * mla.qk_nope_head_dim + values, norm=True),
        row("attention-out", values, h, bias=a.out_bias),
    )


def _dense(a: Architecture, layers: int) -> Sequence[Matrix]:
    return _mlp("mlp", a.hidden_size, a.ffn_hidden_size, layers, layers) if layers else ()


def _experts(a: Architecture, layers: int) -> Sequence[Matrix]:
    if not (moe := a.moe) or not layers:
        return ()
    width, stored, used = moe.moe_ffn_hidden_size, layers * moe.num_experts, layers * moe.topk
    experts = _mlp("experts", a.hidden_size, width, stored, used, moe.mlp_bias)
    shared = _mlp("shared-expert", a.hidden_size, moe.shared_expert_ffn, layers, layers)
    biased = moe.router_bias or moe.correction_bias
    router = Matrix("router", "router", a.hidden_size, moe.num_experts, layers, layers, biased)
    return (*experts, *(shared if moe.shared_expert_ffn else ()), router)


def _mlp(part: str, hidden: int, width: int, stored: int, used: int, bias: bool = False) -> Sequence[Matrix]:
    """Gate and up are one matrix, as every framework multiplies them."""
    return (
        Matrix(part, f"{part}-gate-up", hidden, 2 * width, stored, used, bias),
        Matrix(part, f"{part}-down", width, hidden, stored, used, bias),
    )


def _mtp(a: Architecture) -> Iterator[Matrix]:
    """Matrices of the MTP layers: each is a layer as the last one is, a projection, and the model's own head again.

    Source: DeepSeek V3, https://arxiv.org/abs/2412.19437, section 2.2.
    """
    layers, h = a.mtp_layers, a.hidden_size
    if not layers:
        return
    yield from _attention(a, layers)
    yield from _experts(a, layers) if a.moe else _dense(a, layers)
    yield Matrix("mtp-projection", "mtp-projection", 2 * h, h, layers, layers)
    yield Matrix("head", "head", h, a.vocab_size, 0, layers)


def _mtp_parameters(a: Architecture) -> int:
    """With the norms of both inputs of the projection and of the output."""
    return sum(m.stored * m.size for m in _mtp(a)) + a.mtp_layers * (_norms(a) + 3 * a.hidden_size)


def _norms(a: Architecture) -> int:
    """Of one layer."""
    of_heads = 2 * a.head_dim if a.qk_norm == "rms" else 0
    return a.norms_per_layer * a.hidden_size + of_heads


def _scores(a: Architecture, length: int) -> int:
    """FLOPs of attention itself, per token."""
    n, d = a.num_attention_heads, a.head_dim
    work = n * (d + a.mla.v_head_dim) if a.mla else 2 * n * d
    full = full_attention_layers(a) + a.mtp_layers
    halves = full * length**2 + (a.num_layers + a.mtp_layers - full) * _seen_twice(a, length)
    return 6 * work * halves // (2 * length)


def _seen_twice(a: Architecture, length: int) -> int:
    """Twice the number of pairs of tokens, of which one sees the other, in a layer with a window or chunks."""
    if window := a.sliding_window:
        return 2 * window * (length - window) + window**2 if window < length else length**2
    chunk = a.attention_chunk or length
    return length // chunk * chunk**2 + (length % chunk) ** 2
