"""In the trials of `verify`, logits of tied embeddings are computed in the precision of the training.

MaxText rounds the embeddings to bfloat16 there, whatever `dtype` is, so gradients of float32 are 0.2 % off. A training
keeps what MaxText does.
"""

from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import Any

from primus_train.kit import worker
from primus_train.kit.patches import Patch
from primus_train.kit.replicas import WANTED

__all__ = ["PATCH"]


def _apply() -> None:
    from maxtext.layers import embeddings

    theirs: Any = embeddings.attend_on_embedding

    @functools.wraps(theirs)
    def in_dtype(query: Any, table: Any, dtype: Any, *rest: Any, **named: Any) -> Any:
        kept: Any = embeddings.jnp
        embeddings.jnp = SimpleNamespace(**{**vars(kept), "bfloat16": dtype})
        try:
            return theirs(query, table, dtype, *rest, **named)
        finally:
            embeddings.jnp = kept

    embeddings.attend_on_embedding = in_dtype


PATCH = Patch(
    id="tied-logits-in-bfloat16",
    reason="tied embeddings would be rounded to bfloat16, which hides what a layout or another framework computes",
    needed=lambda: bool(worker.variable(WANTED)),
    apply=_apply,
    link="maxtext/layers/embeddings.py, attend_on_embedding: AI-Hypercomputer/maxtext#531",
    since=(0, 2),
    before=(0, 3),
)
