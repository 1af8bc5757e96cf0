"""A decoder layer in torch, as frameworks write it: fused QKV, torch's attention, experts as batched GEMMs.

Its matrices are the rows of the catalogue, so that its FLOPs are the catalogue's, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional as fn

from primus_bench.benchmarks.train.problem import Problem

__all__ = ["DTYPES", "Forward", "Layer", "draw", "forward", "mask"]

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
_LIMIT, _STEEPNESS = 7.0, 1.702
"""Of gpt-oss's activation."""

Weights = Mapping[str, torch.Tensor]


@dataclass(frozen=True, slots=True)
class Layer:
    """What a step works on. Weights are outputs x inputs; of experts, a stack of them."""

    problem: Problem
    weights: Weights
    x: torch.Tensor
    """Sequences x tokens x hidden size."""
    upstream: torch.Tensor
    """The gradient of the output."""
    chosen: torch.Tensor
    """Tokens x topk: the experts of each token. All have equally many tokens; empty: the layer is dense."""
    angles: torch.Tensor
    """Tokens x half a head: of the rotary embedding."""
    seen: torch.Tensor | None
    """Tokens x tokens, where a query sees a key; None: all before it."""

    @property
    def inputs(self) -> tuple[torch.Tensor, ...]:
        """All that have gradients: the input, then the weights."""
        return self.x, *self.weights.values()


Forward = Callable[[Layer], torch.Tensor]
"""The output of a layer."""


def draw(problem: Problem, device: str, seed: int) -> Layer:
    """Seeded normal data, scaled so that values stay around 1."""
    generator, p = torch.Generator(device).manual_seed(seed), problem
    like: dict[str, Any] = {"dtype": DTYPES[p.dtype], "device": device, "generator": generator}
    weights: dict[str, torch.Tensor] = {}
    for row in p.matrices:
        stack = (row.stored,) if row.part == "experts" else ()
        scale = row.inputs**-0.5
        weights[row.name] = torch.randn((*stack, row.outputs, row.inputs), **like).mul_(scale)
        if row.bias:
            weights[f"{row.name}.bias"] = torch.randn((*stack, row.outputs), **like).mul_(0.1)
        if row.norm:
            weights[f"{row.name}.norm"] = torch.ones(row.inputs, dtype=like["dtype"], device=device)
    weights |= {name: torch.ones(size, dtype=like["dtype"], device=device) for name, size in _norms(p).items()}
    x, upstream = (torch.randn((p.micro_batch, p.seq_len, p.facts.hidden_size), **like) for _ in range(2))
    for one in (x, *weights.values()):
        one.requires_grad_()
    return Layer(p, weights, x, upstream, _routing(p, device), _angles(p, device), mask(p, device))


def _norms(p: Problem) -> dict[str, int]:
    found = {f"norm{number}": p.facts.hidden_size for number in range(p.facts.norms_per_layer)}
    if p.facts.qk_norm == "rms":
        found |= {"q-norm": p.facts.head_dim, "k-norm": p.facts.head_dim}
    return found


def _routing(p: Problem, device: str) -> torch.Tensor:
    """One after the other: a router's own choice would change with rounding, and with the data."""
    if not (moe := p.facts.moe):
        return torch.empty(0, dtype=torch.long, device=device)
    return (torch.arange(p.tokens * moe.topk, device=device) % moe.num_experts).view(p.tokens, moe.topk)


def _angles(p: Problem, device: str) -> torch.Tensor:
    width = p.facts.mla.qk_rope_head_dim if p.facts.mla else p.facts.head_dim
    theta = p.facts.rope_theta_local or p.facts.rope_theta
    turns = theta ** -(torch.arange(0, width, 2, device=device, dtype=torch.float64) / width)
    return torch.arange(p.seq_len, device=device, dtype=torch.float64)[:, None] * turns


def mask(p: Problem, device: str) -> torch.Tensor | None:
    """Of a window or of chunks that are shorter than the sequence."""
    reach = p.facts.sliding_window or p.facts.attention_chunk
    if not reach or reach >= p.seq_len:
        return None
    place = torch.arange(p.seq_len, device=device)
    query, key = place[:, None], place[None, :]
    near = query - key < reach if p.facts.sliding_window else query // reach == key // reach
    return near & (key <= query)


def forward(layer: Layer) -> torch.Tensor:
    """The output."""
    facts, w = layer.problem.facts, layer.weights
    second, third = ("norm1", "norm2") if facts.norms_per_layer == 4 else ("", "norm1")
    x = layer.x + _normed(_attention(layer, _normed(layer.x, w, "norm0", facts.norm_eps)), w, second, facts.norm_eps)
    inner = _normed(x, w, third, facts.norm_eps)
    found = _experts(layer, inner) if facts.moe else _mlp(layer, "mlp", inner)
    return x + _normed(found, w, "norm3" if second else "", facts.norm_eps)


def _normed(x: torch.Tensor, w: Weights, name: str, eps: float) -> torch.Tensor:
    """By the weight of that name; without one, as it is."""
    return fn.rms_norm(x, x.shape[-1:], w[name], eps) if name else x


def _linear(layer: Layer, name: str, x: torch.Tensor) -> torch.Tensor:
    w = layer.weights
    inner = _normed(x, w, f"{name}.norm" if f"{name}.norm" in w else "", layer.problem.facts.norm_eps)
    return fn.linear(inner, w[name], w.get(f"{name}.bias"))


def _attention(layer: Layer, x: torch.Tensor) -> torch.Tensor:
    q, k, v = _latent(layer, x) if layer.problem.facts.mla else _grouped(layer, x)
    options: dict[str, Any] = {"is_causal": True} if layer.seen is None else {"attn_mask": layer.seen}
    found = fn.scaled_dot_product_attention(q, k, v, enable_gqa=q.shape[1] != k.shape[1], **options)
    return _linear(layer, "attention-out", found.transpose(1, 2).flatten(2))


Heads = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def _grouped(layer: Layer, x: torch.Tensor) -> Heads:
    """Sequences x heads x tokens x head size."""
    facts = layer.problem.facts
    n, k, d = facts.num_attention_heads, facts.num_kv_heads, facts.head_dim
    heads = _linear(layer, "qkv", x).unflatten(-1, (n + 2 * k, d)).transpose(1, 2)
    query, key, value = heads.split((n, k, k), dim=1)
    query, key = (_unit(layer, name, one) for name, one in (("q-norm", query), ("k-norm", key)))
    return _turned(query, layer.angles), _turned(key, layer.angles), value


def _unit(layer: Layer, name: str, heads: torch.Tensor) -> torch.Tensor:
    facts = layer.problem.facts
    if facts.qk_norm == "none":
        return heads
    weight = layer.weights[name] if facts.qk_norm == "rms" else None
    return fn.rms_norm(heads, heads.shape[-1:], weight, facts.norm_eps)


def _latent(layer: Layer, x: torch.Tensor) -> Heads:
    """MLA: queries and keys have a part without and a part with the rotary embedding; that of keys is shared."""
    facts, mla = layer.problem.facts, layer.problem.facts.mla
    assert mla is not None
    n, plain, turned = facts.num_attention_heads, mla.qk_nope_head_dim, mla.qk_rope_head_dim
    inner = _linear(layer, "q-up", _linear(layer, "q-down", x)) if mla.q_lora_rank else _linear(layer, "q", x)
    q_plain, q_turned = inner.unflatten(-1, (n, plain + turned)).transpose(1, 2).split((plain, turned), dim=-1)
    latent, k_turned = _linear(layer, "kv-down", x).split((mla.kv_lora_rank, turned), dim=-1)
    both = _linear(layer, "kv-up", latent).unflatten(-1, (n, plain + mla.v_head_dim)).transpose(1, 2)
    k_plain, value = both.split((plain, mla.v_head_dim), dim=-1)
    shared = _turned(k_turned[:, None], layer.angles).expand(-1, n, -1, -1)
    return (torch.cat((q_plain, _turned(q_turned, layer.angles)), -1), torch.cat((k_plain, shared), -1), value)


def _turned(heads: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
    cos, sin = (torch.cat((one, one), -1).to(heads.dtype) for one in (angles.cos(), angles.sin()))
    first, second = heads.chunk(2, -1)
    return heads * cos + torch.cat((-second, first), -1) * sin


def _mlp(layer: Layer, part: str, x: torch.Tensor) -> torch.Tensor:
    return _linear(layer, f"{part}-down", _activated(layer, _linear(layer, f"{part}-gate-up", x)))


def _activated(layer: Layer, both: torch.Tensor) -> torch.Tensor:
    gate, up = both.chunk(2, -1)
    kind = layer.problem.facts.activation
    if kind == "clamped_swiglu":
        gate, up = gate.clamp(max=_LIMIT), up.clamp(-_LIMIT, _LIMIT)
        return (up + 1) * gate * torch.sigmoid(_STEEPNESS * gate)
    return (fn.silu(gate) if kind == "swiglu" else fn.gelu(gate, approximate="tanh")) * up


def _experts(layer: Layer, x: torch.Tensor) -> torch.Tensor:
    """Each token at its experts, in the order of the experts, and back."""
    moe, chosen = layer.problem.facts.moe, layer.chosen
    assert moe is not None
    flat = x.flatten(0, 1)
    shares = _shares(layer, flat).flatten()[:, None]
    order = chosen.flatten().argsort(stable=True)
    rows = flat[order // moe.topk]
    rows = rows * shares[order] if moe.scores_on_input else rows
    inner = _activated(layer, _stacked(layer, "experts-gate-up", rows.view(moe.num_experts, -1, rows.shape[-1])))
    found = _stacked(layer, "experts-down", inner).flatten(0, 1)[order.argsort()]
    found = found if moe.scores_on_input else found * shares
    summed = found.view(*chosen.shape, -1).sum(1).view_as(x)
    return summed + _mlp(layer, "shared-expert", x) if moe.shared_expert_ffn else summed


def _shares(layer: Layer, flat: torch.Tensor) -> torch.Tensor:
    """What the router gives each chosen expert, tokens x topk."""
    moe = layer.problem.facts.moe
    assert moe is not None
    logits = _linear(layer, "router", flat).float()
    if moe.score == "softmax_topk":
        return (logits.gather(1, layer.chosen).softmax(-1) * moe.routed_scaling).to(flat.dtype)
    scores = logits.sigmoid() if moe.score == "sigmoid" else logits.softmax(-1)
    return (scores.gather(1, layer.chosen) * moe.routed_scaling).to(flat.dtype)


def _stacked(layer: Layer, name: str, rows: torch.Tensor) -> torch.Tensor:
    """Experts x tokens of each x outputs."""
    found = torch.bmm(rows, layer.weights[name].transpose(1, 2))
    bias = layer.weights.get(f"{name}.bias")
    return found if bias is None else found + bias[:, None]
