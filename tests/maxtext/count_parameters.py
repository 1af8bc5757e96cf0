"""Prints how many parameters MaxText's model has for each set of settings: python count_parameters.py < JSON.

MaxText's own abstract model has shapes and no memory. Layers that are alike are one array for all of them.
"""

from __future__ import annotations

import json
import math
import sys
from typing import Any

HERE = {"hardware": "cpu", "attention": "dot_product", "skip_jax_distributed_system": True, "log_config": False,
        "dataset_type": "synthetic", "per_device_batch_size": 1, "max_target_length": 16, "jax_cache_dir": "",
        "run_name": "count", "enable_checkpointing": False}  # fmt: skip


def config(settings: dict[str, Any]) -> Any:
    """As MaxText itself reads arguments."""
    from maxtext.configs import pyconfig

    given = {**settings, **HERE, "override_model_config": True}
    words = [f"{name}={json.dumps(value)}" for name, value in given.items()]
    return pyconfig.initialize(["count", _base(), *words])


def _base() -> str:
    from maxtext.utils.globals import MAXTEXT_CONFIGS_DIR

    return f"{MAXTEXT_CONFIGS_DIR}/base.yml"


def count(settings: dict[str, Any]) -> dict[str, int]:
    """Parameters of the model, and those of the MTP layers apart."""
    import jax
    from flax import nnx
    from maxtext.layers.moe import MoEBiasVar
    from maxtext.utils import maxtext_utils, model_creation_utils

    read = config(settings)
    mesh = jax.sharding.Mesh(maxtext_utils.create_device_mesh(read), read.mesh_axes)
    _, model = model_creation_utils.create_nnx_abstract_model(read, mesh)
    sizes = {"total": 0, "mtp": 0}
    for path, leaf in nnx.to_flat_state(nnx.state(model, (nnx.Param, MoEBiasVar))):
        part = "mtp" if any("mtp" in str(name) for name in path) else "total"
        sizes[part] += math.prod(leaf.shape)
    return sizes


if __name__ == "__main__":
    print(json.dumps({name: count(settings) for name, settings in json.load(sys.stdin).items()}))
