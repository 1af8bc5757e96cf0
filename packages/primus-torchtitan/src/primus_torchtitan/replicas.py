"""What this rank holds of the model, for `verify`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from primus_train.kit import worker
from primus_train.kit.replicas import Copy

__all__ = ["copies"]


def copies(model_parts: Any) -> Iterator[Copy]:
    """Each parameter, or this rank's piece of it. Ranks with the same coordinates on sharded axes hold the same."""
    for part in model_parts:
        for name, parameter in part.named_parameters():
            piece, local = "", parameter.detach()
            if isinstance(local, DTensor):
                place = local.device_mesh.get_coordinate() or ()
                sharded = (not one.is_replicate() for one in local.placements)
                piece = ",".join(f"{at}" if split else "*" for at, split in zip(place, sharded, strict=True))
                local = local.to_local()
            yield Copy(name, piece, worker.rank(), local.cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
