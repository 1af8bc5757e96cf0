"""The attention of a model of the catalogue: heads, their sizes, and the window that all of its layers have."""

from __future__ import annotations

from primus_bench.benchmarks.attention.problem import Problem
from primus_train.models.architecture import Architecture

__all__ = ["layer"]


def layer(facts: Architecture, problem: Problem) -> Problem:
    """`problem` with the heads of the model. Decoders are causal.

    MLA trains with keys and values of every head written out: its keys are longer than its values (arXiv:2405.04434).
    Where only some layers have a window, the layers without one are meant.
    """
    window = 0 if facts.full_attention_every else facts.sliding_window or 0
    plain = problem._replace(causal=True, window=window, heads=facts.num_attention_heads)
    if mla := facts.mla:
        keys = mla.qk_nope_head_dim + mla.qk_rope_head_dim
        return plain._replace(kv_heads=plain.heads, head_dim=keys, v_head_dim=mla.v_head_dim)
    return plain._replace(kv_heads=facts.num_kv_heads, head_dim=facts.head_dim, v_head_dim=facts.head_dim)
