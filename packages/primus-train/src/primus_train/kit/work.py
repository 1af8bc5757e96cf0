"""How much work a token is, and what a device can do: planned once, so that every worker's TFLOP/s and MFU agree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from primus_core.plan.plan import Distributed
    from primus_machine.gpus.devices import Gpu
    from primus_train.models.architecture import Architecture

__all__ = ["ComputeCost", "planned", "planned_ranks"]


@dataclass(frozen=True, slots=True)
class ComputeCost:
    """What a worker needs to know to say how well it does."""

    flops_per_token: int | None = None
    """Forward and backward; None: the facts of the model are not known, and the framework counts."""
    peak_tflops: float | None = None
    """Of one device, dense, in the data type in use; None: a CPU, or a GPU whose peak is not known."""

    def to_dict(self) -> dict[str, Any]:
        """For the worker's configuration."""
        return asdict(self)

    def rates(self, tokens_per_second: float, counted: float | None) -> dict[str, float | None]:
        """`tflops_per_gpu` and `mfu` of a device with so many tokens; `counted`: FLOPs of a token by the framework."""
        flops = counted if self.flops_per_token is None else self.flops_per_token
        tflops = None if flops is None else tokens_per_second * flops / 1e12
        mfu = tflops / self.peak_tflops if tflops is not None and self.peak_tflops else None
        return {"tflops_per_gpu": tflops, "mfu": mfu}


def planned(
    model: Architecture | None, seq_length: int, devices: Sequence[Gpu], dtype: str
) -> tuple[ComputeCost, list[str]]:
    """The work of a token of a sequence, on one of `devices` (none: a CPU), and what to tell about it."""
    flops = None
    if model is not None:
        from primus_train.models.arithmetic import flops_per_token

        flops = sum(flops_per_token(model, seq_length).values())
    peak, notes = _peak(devices[0], dtype) if devices else (None, [])
    return ComputeCost(flops, peak), notes


def planned_ranks(place: Distributed, notes: list[str]) -> int | None:
    """How many ranks there will be; None: that is not known yet, which `notes` then say."""
    if not place.tentative:
        return place.world_size
    notes.append("the number of ranks is not known yet: the layout is checked on the nodes")
    return None


def _peak(device: Gpu, dtype: str) -> tuple[float | None, list[str]]:
    """A part of a GPU has its share of the peak."""
    from primus_machine.gpus import models  # reads a table

    model = next((model for model in models.load() if model.name == device.model), None)
    if model is None or dtype not in model.peak_tflops:
        return None, [f"no MFU: the peak of {device.model or 'this GPU'} in {dtype} is not known"]
    unverified = "peak_tflops" in model.unverified
    notes = [f"MFU uses an unverified peak: {model.name}, {dtype}"] if unverified else []
    return model.peak_tflops[dtype] / device.partitions, notes
