"""How a worker that measures a device starts: it meets the other ranks and takes a device of its own."""

from __future__ import annotations

import torch

from primus_bench.measure.device import Device, probe
from primus_bench.measure.ranks import Ranks, join, use_device
from primus_machine.host import HostRoot

__all__ = ["start"]


def start(kind: str) -> tuple[Ranks, Device]:
    """All ranks, and this rank's device of that kind.

    Raises:
        MachineError: there is no GPU that torch can use, or there are fewer GPUs than ranks.
    """
    ranks = join(HostRoot().environ)
    if torch.cuda.is_available():  # else the probe says more
        use_device(kind, ranks.place)
    torch.set_float32_matmul_precision("highest")  # TF32 would be another benchmark, and a wrong reference
    return ranks, probe(kind)
