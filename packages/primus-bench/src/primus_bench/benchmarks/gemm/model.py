"""The multiplications of one training step of a model: forward, and the gradients of inputs and of weights.

They are those of one rank and one micro-batch. Attention's own products, QKᵀ and PV, are no GEMMs here: `bench
attention` measures them. The router of experts is left out unless it is named: nobody counts its FLOPs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from primus_bench.benchmarks.gemm.problem import Problem
from primus_core.errors import Mistakes, RequestError, suggestion
from primus_train.models.architecture import Architecture
from primus_train.models.arithmetic import Matrix, matrices_of_training

__all__ = ["Step", "problems"]

_INPUTS_SPLIT = ("attention-out", "mlp-down", "experts-down", "shared-expert-down")
"""Tensor parallelism divides the inputs of these, and the outputs of all others (Shoeybi et al., arXiv:1909.08053)."""
_TOKENS_SPLIT = ("q-down", "kv-down", "router")
"""Every rank has these whole, and multiplies its part of the sequence (Megatron-LM, `multi_latent_attention.py`)."""

_MOST_RANKS = 1024
"""Degrees that are named."""


class Step(NamedTuple):
    """How a rank trains."""

    seq_len: int
    micro_batch: int = 1
    tp: int = 1
    ep: int = 1

    @property
    def tokens(self) -> int:
        """Of a micro-batch."""
        return self.seq_len * self.micro_batch


def problems(facts: Architecture, names: Sequence[str], passes: Sequence[str], step: Step,
             dtype: str) -> tuple[Problem, ...]:  # fmt: skip
    """One for each matrix of the model and pass, or for those of `names`, with their number in a step.

    Raises:
        RequestError: it has no such matrix, or cannot be divided so.
    """
    known = {row.name: row for row in matrices_of_training(facts)}
    mistakes = Mistakes()
    _check_names(names, known, mistakes)
    _check_parallel(facts, step, mistakes)
    mistakes.refuse()
    chosen = names or [name for name in known if name != "router"]
    rows = (known[name] for name in dict.fromkeys(chosen))
    return tuple(one for row in rows for one in _of_matrix(row, facts, passes, step, dtype))


def _check_names(names: Sequence[str], known: Mapping[str, Matrix], mistakes: Mistakes) -> None:
    for name in names:
        if name not in known:
            fix = suggestion(name, known) or "remove --matrix to measure all of them"
            mistakes.add(RequestError(f"the model has no matrix '{name}'", why=f"it has: {', '.join(known)}", fix=fix))


def _check_parallel(facts: Architecture, step: Step, mistakes: Mistakes) -> None:
    shared = facts.num_attention_heads if facts.mla else facts.num_kv_heads
    experts = facts.moe.num_experts if facts.moe else 1
    widths = {facts.ffn_hidden_size, facts.moe.moe_ffn_hidden_size if facts.moe else facts.ffn_hidden_size}
    of_tp = {f"{width}, the width of an MLP": width for width in sorted(widths)}
    of_tp |= {f"{shared} heads of {'attention' if facts.mla else 'keys and values'}": shared}
    of_tp |= {f"{step.tokens} tokens": step.tokens}
    of_ep = {f"{experts} {'experts' if facts.moe else 'expert: the model is dense'}": experts}
    for flag, degree, divided in (("--tp", step.tp, of_tp), ("--ep", step.ep, of_ep)):
        if wrong := [what for what, count in divided.items() if count % degree]:
            common = math.gcd(*divided.values())
            known = ", ".join(str(n) for n in range(1, min(common, _MOST_RANKS) + 1) if common % n == 0)
            what = f"{flag} {degree} cannot divide {'; '.join(wrong)}"
            mistakes.add(RequestError(what, fix=f"known: {known}"))
    if facts.moe and step.tokens * facts.moe.topk < experts // step.ep:
        why = f"{step.tokens} tokens choose {facts.moe.topk} each"
        fix = "choose a larger --seq-len or --micro-batch"
        mistakes.add(RequestError(f"not every one of {experts // step.ep} experts gets a token", why=why, fix=fix))


def _of_matrix(row: Matrix, facts: Architecture, passes: Sequence[str], step: Step,
               dtype: str) -> Iterator[Problem]:  # fmt: skip
    """Frameworks keep a weight as outputs x inputs: Y = X·Wᵀ, dX = dY·W, dW = dYᵀ·X."""
    tokens, inputs, outputs = _sizes(row, step)
    repeats, groups = row.used, 1
    if facts.moe and row.part == "experts":
        # each of ep ranks sends its share of the chosen tokens to each other: as many rows arrive as were chosen
        tokens, repeats = tokens * facts.moe.topk, row.used // facts.moe.topk
        groups = facts.moe.num_experts // step.ep
    kinds = {
        "fwd": Problem(tokens, outputs, inputs, dtype, trans_b=True, groups=groups),
        "dgrad": Problem(tokens, inputs, outputs, dtype, groups=groups),
        "wgrad": Problem(outputs, inputs, tokens, dtype, trans_a=True, groups=groups, split="k" if groups > 1 else "m"),
    }
    for one in passes:
        problem = kinds[one]._replace(name=f"{row.name}/{one}", repeats=repeats)
        # frameworks transpose what they quantise: libraries multiply fp8 in this layout only
        yield problem._replace(trans_a=False, trans_b=True) if dtype == "fp8" else problem


def _sizes(row: Matrix, step: Step) -> tuple[int, int, int]:
    """Tokens, inputs and outputs on one rank. The vocabulary is padded to a multiple of tp."""
    if row.name in _TOKENS_SPLIT:
        return step.tokens // step.tp, row.inputs, row.outputs
    if row.name in _INPUTS_SPLIT:
        return step.tokens, row.inputs // step.tp, row.outputs
    return step.tokens, row.inputs, -(-row.outputs // step.tp)
