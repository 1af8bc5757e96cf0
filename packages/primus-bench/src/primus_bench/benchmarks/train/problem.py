"""One layer of a model as numbers: its facts, the tokens of a step, and its work as the catalogue counts it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, fields, replace
from typing import Any, NamedTuple

from primus_machine import strict
from primus_train.models.architecture import Architecture
from primus_train.models.arithmetic import Matrix, flops_per_token, matrices

__all__ = ["Problem", "as_json", "of_json", "one_layer", "unbuildable"]

_NOT_OF_A_LAYER = ("head",)
_COMPARED = 16
_MOST_EXPERTS = 32


class Problem(NamedTuple):
    """A training step of one layer on one rank."""

    model: str
    facts: Architecture
    """Of a model that has this layer alone (`one_layer`)."""
    seq_len: int
    micro_batch: int = 1
    dtype: str = "bf16"
    optimizer: str = "none"

    @property
    def tokens(self) -> int:
        """Of a step on one rank."""
        return self.seq_len * self.micro_batch

    @property
    def compared(self) -> int:
        """Tokens that are compared with a reference, which needs a copy of each expert of theirs."""
        return max(1, min(_COMPARED, _MOST_EXPERTS // self.facts.moe.topk)) if self.facts.moe else _COMPARED

    @property
    def flops_per_token(self) -> int:
        """Forward and backward."""
        parts = flops_per_token(self.facts, self.seq_len)
        return sum(work for part, work in parts.items() if part not in _NOT_OF_A_LAYER)

    @property
    def matrices(self) -> tuple[Matrix, ...]:
        """Of the layer."""
        return tuple(one for one in matrices(self.facts) if one.part not in _NOT_OF_A_LAYER)

    def __str__(self) -> str:
        kind = f"MoE {self.facts.moe.topk} of {self.facts.moe.num_experts}" if self.facts.moe else "dense"
        optimizer = f", {self.optimizer}" if self.optimizer != "none" else ""
        return (
            f"one layer of {self.model} ({kind}), {self.micro_batch} x {self.seq_len} tokens, {self.dtype}{optimizer}"
        )


def one_layer(facts: Architecture) -> Architecture:
    """A model of one layer: with experts where the model has some, with a window where most of its layers have one."""
    moe = replace(facts.moe, first_k_dense=0, moe_layer_step=1) if facts.moe else None
    kept = {one.name: getattr(facts, one.name) for one in fields(Architecture)}
    return Architecture(**{**kept, "num_layers": 1, "mtp_layers": 0, "moe": moe})


def unbuildable(facts: Architecture) -> Iterator[str]:
    """What the layer has that torch's attention has not."""
    if facts.attn_sinks:
        yield "attention with sinks"
    if facts.attn_softcap:
        yield "attention with soft-capped scores"


def as_json(facts: Architecture) -> str:
    """The facts as one word of a command, without those that are as usual; `of_json` reads it."""
    usual = {one.name: one.default for one in fields(Architecture)}
    different = {name: value for name, value in asdict(facts).items() if value != usual[name]}
    return json.dumps(different, separators=(",", ":"))


def of_json(text: str) -> Architecture:
    """What `as_json` wrote.

    Raises:
        ValueError: it is something else.
    """
    data: Any = json.loads(text)
    return strict.read(Architecture, data)
