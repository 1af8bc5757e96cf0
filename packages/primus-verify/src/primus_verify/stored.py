"""Reads checkpoints of any layout as whole arrays, in one process without a framework."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from primus_core.errors import MachineError

if TYPE_CHECKING:
    import numpy as np

    from primus_verify.contract import Kind, Verifier

__all__ = ["State", "read"]

State = Mapping[tuple["Kind", str], "np.ndarray[Any, Any]"]
"""Weights and moments, by kind and name."""


def read(verifier: Verifier, path: str) -> State:
    """Return the weights and moments in the checkpoint at `path`.

    Raises:
        MachineError: it cannot be read.
    """
    load = {"torch": _read_torch, "orbax": _read_orbax}[verifier.format]
    try:
        return {(kind, name): value for kind, name, value in verifier.tensors(load(path))}
    except (ImportError, OSError, EOFError, ValueError, RuntimeError) as error:
        raise MachineError(f"the checkpoint {path} cannot be read", why=str(error)) from None


def _read_torch(path: str) -> dict[str, Any]:
    """Every tensor, whatever ranks wrote it. Its list, `.metadata`, is a pickle that our own trial has just written."""
    import warnings

    import torch
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.api import CheckpointException

    reader = dcp.FileSystemReader(path)
    stored = reader.read_metadata().state_dict_metadata
    tensors = {
        name: torch.empty(one.size, dtype=one.properties.dtype)
        for name, one in stored.items()
        if isinstance(one, dcp.metadata.TensorStorageMetadata) and one.properties.dtype.is_floating_point
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that there is one process only
        try:
            dcp.load(tensors, storage_reader=reader, no_dist=True)
        except CheckpointException as error:  # a BaseException
            raise ValueError(str(error)) from None
    return {name: tensor.float().numpy() for name, tensor in tensors.items()}


def _read_orbax(path: str) -> dict[str, Any]:
    """Every array of the tree, by the path to it with dots."""
    import logging

    import jax
    import numpy as np
    from orbax import checkpoint as ocp

    logging.getLogger("absl").setLevel(logging.ERROR)  # it warns of a file that MaxText does not write

    handler = ocp.PyTreeCheckpointHandler()
    with ocp.Checkpointer(handler) as checkpointer:
        tree = checkpointer.metadata(path).item_metadata.tree
        wanted = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), tree)
        found = checkpointer.restore(path, args=ocp.args.PyTreeRestore(restore_args=wanted))
    leaves, _ = jax.tree_util.tree_flatten_with_path(found)
    names = [".".join(str(getattr(part, "key", getattr(part, "idx", part))) for part in keys) for keys, _ in leaves]
    return {name: value for name, (_, value) in zip(names, leaves, strict=True) if hasattr(value, "dtype")}
