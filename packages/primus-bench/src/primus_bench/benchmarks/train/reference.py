"""A decoder layer written out, for a few tokens: head by head, token by token. What the fast one is compared with.

It shares no code with `layer`, and computes in the type of its weights.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from primus_train.models.architecture import Architecture

__all__ = ["output"]

Weights = Mapping[str, torch.Tensor]


def output(x: torch.Tensor, w: Weights, facts: Architecture, chosen: list[list[int]]) -> torch.Tensor:
    """The output for the first tokens of a sequence, tokens x hidden size.

    `chosen`: the experts of each token. The stacks in `w` hold those that are named there, and no others.
    """
    four = facts.norms_per_layer == 4
    attended = _attention(_rms(x, w["norm0"], facts), w, facts)
    x = x + (_rms(attended, w["norm1"], facts) if four else attended)
    inner = _rms(x, w["norm2" if four else "norm1"], facts)
    found = _mixture(inner, w, facts, chosen) if facts.moe else _mlp(inner, w, facts, "mlp")
    return x + (_rms(found, w["norm3"], facts) if four else found)


def _rms(x: torch.Tensor, weight: torch.Tensor | None, facts: Architecture) -> torch.Tensor:
    wide = x.double() if x.dtype == torch.float64 else x.float()
    scaled = wide / (wide.square().mean(-1, keepdim=True) + facts.norm_eps).sqrt()
    return scaled.to(x.dtype) if weight is None else (scaled * weight).to(x.dtype)


def _times(x: torch.Tensor, w: Weights, name: str, facts: Architecture) -> torch.Tensor:
    """With its norm before and its bias behind, where it has them."""
    norm, bias = w.get(f"{name}.norm"), w.get(f"{name}.bias")
    found = (x if norm is None else _rms(x, norm, facts)) @ w[name].T
    return found if bias is None else found + bias


def _attention(x: torch.Tensor, w: Weights, facts: Architecture) -> torch.Tensor:
    heads = (_latent_head if facts.mla else _head)(x, w, facts)
    return _times(torch.cat(heads, -1), w, "attention-out", facts)


def _head(x: torch.Tensor, w: Weights, facts: Architecture) -> list[torch.Tensor]:
    """What each head finds. Rows of the matrix: all queries, then all keys, then all values."""
    n, k, d = facts.num_attention_heads, facts.num_kv_heads, facts.head_dim
    all_rows, found = _times(x, w, "qkv", facts), []
    for head in range(n):
        group = head // (n // k)
        query, key, value = (all_rows[:, d * at : d * (at + 1)] for at in (head, n + group, n + k + group))
        if facts.qk_norm != "none":
            query, key = _rms(query, w.get("q-norm"), facts), _rms(key, w.get("k-norm"), facts)
        found.append(_attended(_turn(query, facts), _turn(key, facts), value, facts))
    return found


def _latent_head(x: torch.Tensor, w: Weights, facts: Architecture) -> list[torch.Tensor]:
    mla = facts.mla
    assert mla is not None
    d, plain, values = facts.head_dim, mla.qk_nope_head_dim, mla.v_head_dim
    queries = _times(_times(x, w, "q-down", facts), w, "q-up", facts) if mla.q_lora_rank else _times(x, w, "q", facts)
    down = _times(x, w, "kv-down", facts)
    shared = _turn(down[:, mla.kv_lora_rank :], facts)
    up, found = _times(down[:, : mla.kv_lora_rank], w, "kv-up", facts), []
    for head in range(facts.num_attention_heads):
        query, both = (
            queries[:, d * head : d * (head + 1)],
            up[:, (plain + values) * head : (plain + values) * (head + 1)],
        )
        query = torch.cat((query[:, :plain], _turn(query[:, plain:], facts)), -1)
        key = torch.cat((both[:, :plain], shared), -1)
        found.append(_attended(query, key, both[:, plain:], facts))
    return found


def _turn(x: torch.Tensor, facts: Architecture) -> torch.Tensor:
    """The rotary embedding, as a product of complex numbers: the first half of a head is real, the second imaginary."""
    width, theta = x.shape[-1], facts.rope_theta_local or facts.rope_theta
    exponents = torch.arange(width // 2, dtype=torch.float64, device=x.device) * 2 / width
    angles = torch.arange(len(x), dtype=torch.float64, device=x.device)[:, None] / theta**exponents
    wide = torch.float64 if x.dtype == torch.float64 else torch.float32
    real, imaginary = x.to(wide).chunk(2, -1)
    turned = torch.complex(real, imaginary) * torch.polar(torch.ones_like(angles), angles).to(
        torch.complex128 if wide == torch.float64 else torch.complex64
    )
    return torch.cat((turned.real, turned.imag), -1).to(x.dtype)


def _attended(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, facts: Architecture) -> torch.Tensor:
    rows = []
    for at in range(len(query)):
        first = max(0, at + 1 - facts.sliding_window) if facts.sliding_window else 0
        first = at // facts.attention_chunk * facts.attention_chunk if facts.attention_chunk else first
        scores = key[first : at + 1] @ query[at] / query.shape[-1] ** 0.5
        rows.append(torch.softmax(scores, 0) @ value[first : at + 1])
    return torch.stack(rows)


def _mlp(x: torch.Tensor, w: Weights, facts: Architecture, part: str) -> torch.Tensor:
    return _times(_gated(_times(x, w, f"{part}-gate-up", facts), facts), w, f"{part}-down", facts)


def _gated(both: torch.Tensor, facts: Architecture) -> torch.Tensor:
    half = both.shape[-1] // 2
    gate, up = both[..., :half], both[..., half:]
    if facts.activation == "clamped_swiglu":
        gate, up = gate.clamp(max=7.0), up.clamp(-7.0, 7.0)
        return (up + 1) * gate / (1 + torch.exp(-1.702 * gate))
    if facts.activation == "geglu":
        return 0.5 * gate * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (gate + 0.044715 * gate**3))) * up
    return gate / (1 + torch.exp(-gate)) * up


def _mixture(x: torch.Tensor, w: Weights, facts: Architecture, chosen: list[list[int]]) -> torch.Tensor:
    moe = facts.moe
    assert moe is not None
    places = {expert: place for place, expert in enumerate(sorted({one for experts in chosen for one in experts}))}
    logits = _times(x, w, "router", facts)
    logits = logits if logits.dtype == torch.float64 else logits.float()
    rows = []
    for token, experts in enumerate(chosen):
        row = torch.zeros_like(x[token])
        for expert in experts:
            share = (_share(logits[token], expert, experts, moe.score) * moe.routed_scaling).to(x.dtype)
            found = _expert(x[token] * share if moe.scores_on_input else x[token], w, facts, places[expert])
            row = row + (found if moe.scores_on_input else found * share)
        rows.append(row)
    summed = torch.stack(rows)
    return summed + _mlp(x, w, facts, "shared-expert") if moe.shared_expert_ffn else summed


def _share(logits: torch.Tensor, expert: int, experts: list[int], score: str) -> torch.Tensor:
    """What the router gives one expert of a token."""
    if score == "sigmoid":
        return 1 / (1 + torch.exp(-logits[expert]))
    among = logits[experts] if score == "softmax_topk" else logits
    return torch.exp(logits[expert] - torch.logsumexp(among, 0))


def _expert(x: torch.Tensor, w: Weights, facts: Architecture, place: int) -> torch.Tensor:
    own = {name: one[place] for name, one in w.items() if name.startswith("experts-")}
    return _mlp(x, own, facts, "experts")
