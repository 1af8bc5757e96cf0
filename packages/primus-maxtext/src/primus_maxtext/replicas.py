"""What the devices of this process hold of the model, for `verify`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from primus_train.kit.replicas import Copy

__all__ = ["copies"]


def copies(state: Any) -> Iterator[Copy]:
    """Each array of the state in pieces: devices with the same range of it hold the same."""
    for path, array in jax.tree_util.tree_flatten_with_path(state)[0]:
        if not isinstance(array, jax.Array) or jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key):
            continue
        for shard in array.addressable_shards:
            data = np.ascontiguousarray(shard.data).reshape(-1).view(np.uint8)
            yield Copy(jax.tree_util.keystr(path), str(shard.index), shard.device.id, data)
