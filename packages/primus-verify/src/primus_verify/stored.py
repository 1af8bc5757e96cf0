"""Reads checkpoints of any layout as whole arrays, in one process without a framework."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from primus_core.errors import MachineError

if TYPE_CHECKING:
    import numpy as np

    from primus_verify.contract import Kind, Verifier

__all__ = ["State", "overwrite", "read"]

State = Mapping[tuple["Kind", str], "np.ndarray[Any, Any]"]
"""Weights and moments, by kind and name."""


def read(verifier: Verifier, path: str) -> State:
    """Return the weights and moments in the checkpoint at `path`.

    Raises:
        MachineError: it cannot be read.
    """
    return {(kind, name): value for kind, name, value in verifier.tensors(_raw(verifier, path))}


def overwrite(verifier: Verifier, path: str, change: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> None:
    """Replace what the checkpoint at `path` stores, which our own trial has just written, by what `change` returns.

    Raises:
        MachineError: it cannot be read.
    """
    write = {"torch": _write_torch, "orbax": _write_orbax}[verifier.format]
    write(path, change(_raw(verifier, path)))


def _raw(verifier: Verifier, path: str) -> dict[str, Any]:
    load = {"torch": _read_torch, "orbax": _read_orbax}[verifier.format]
    try:
        return load(path)
    except (ImportError, OSError, EOFError, ValueError, RuntimeError) as error:
        raise MachineError(f"the checkpoint {path} cannot be read", why=str(error)) from None


def _write_torch(path: str, arrays: Mapping[str, Any]) -> None:
    """Write the numbers of each piece of a tensor over those that are there: all else stays as it is."""
    import io

    import torch
    import torch.distributed.checkpoint as dcp

    metadata = dcp.FileSystemReader(path).read_metadata()
    for index, place in metadata.storage_data.items():
        if index.fqn not in arrays:
            continue
        known = metadata.state_dict_metadata[index.fqn]
        (chunk,) = (one for one in known.chunks if one.offsets == index.offset)
        where = tuple(slice(begin, begin + size) for begin, size in zip(chunk.offsets, chunk.sizes, strict=True))
        piece, buffer = torch.tensor(arrays[index.fqn][where], dtype=known.properties.dtype), io.BytesIO()
        torch.save(piece, buffer)
        if buffer.tell() != place.length:
            what = f"{index.fqn} has {place.length} bytes in {path}/{place.relative_path}, and now {buffer.tell()}"
            raise MachineError(what, why="the numbers are written over those that are there")
        with open(os.path.join(path, place.relative_path), "r+b") as file:
            file.seek(place.offset)
            file.write(buffer.getvalue())


def _write_orbax(path: str, arrays: Mapping[str, Any]) -> None:
    """The tree of the weights again, from the paths with dots."""
    from orbax import checkpoint as ocp

    tree: dict[str, Any] = {}
    for name, array in arrays.items():
        if not name.startswith("params."):
            continue  # trials load weights alone
        *folders, last = name.split(".")
        at = tree
        for folder in folders:
            at = at.setdefault(folder, {})
        at[last] = array
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(path, tree, force=True)


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
