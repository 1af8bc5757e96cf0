"""Prints how many parameters MaxText's model has for each set of settings: python count_parameters.py < JSON.

MaxText's own abstract model has shapes and no memory. Layers that are alike are one array for all of them.
"""

from __future__ import annotations

import json
import math
import sys
from typing import Any

HERE = {"skip_jax_distributed_system": True, "jax_cache_dir": ""}


def config(settings: dict[str, Any]) -> Any:
    """As MaxText itself reads arguments."""
    from maxtext.configs import pyconfig
    from maxtext.utils.globals import MAXTEXT_CONFIGS_DIR

    words = [f"{name}={json.dumps(value)}" for name, value in {**settings, **HERE}.items()]
    return pyconfig.initialize(["count", f"{MAXTEXT_CONFIGS_DIR}/base.yml", *words])


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
