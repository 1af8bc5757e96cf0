"""Whether the model has the token ids of the data: JAX raises no error for an index that a table does not have.

MaxText would train, with losses that look well, on tokens that its embedding does not have.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from primus_core.errors import TrainingError

__all__ = ["check_first_batches"]

_BATCHES = 10
"""A wrong tokenizer shows in the first ones. To look at all would have each step wait for its data."""


def check_first_batches() -> None:
    """Look at the first batches that MaxText loads."""
    from maxtext.common.data_loader import DataLoader

    theirs, left = DataLoader.load_next_batch_pre_sharding, [_BATCHES]

    def load(loader: Any) -> Any:
        batch = theirs(loader)
        if left[0]:
            left[0] -= 1
            _check(batch, int(loader.config.vocab_size))
        return batch

    DataLoader.load_next_batch_pre_sharding = load


def _check(batch: Mapping[str, Any], size: int) -> None:
    """Each process looks at its own part.

    Raises:
        TrainingError: an id is outside the vocabulary.
    """
    import numpy as np

    tokens = batch.get("inputs")
    parts = [shard.data for shard in getattr(tokens, "addressable_shards", ())] or [tokens]
    largest = max((int(np.max(part)) for part in parts if part is not None and np.size(part)), default=0)
    if largest >= size:
        raise TrainingError(
            f"token id {largest} is outside the model's vocabulary of {size}",
            why="the data was prepared with another tokenizer, or `vocab_size` is too small",
            fix=f"set vocab_size to the size of the tokenizer, at least {largest + 1}, or use the model's tokenizer",
        )
