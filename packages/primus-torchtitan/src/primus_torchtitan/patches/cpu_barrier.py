"""Barriers on the CPU: gloo takes no device ids."""

from __future__ import annotations

from typing import Any

from primus_torchtitan.patches._patch import Patch, no_accelerator

__all__ = ["PATCH"]


def _apply() -> None:
    import torch.distributed as dist

    barrier = dist.barrier

    def without_devices(group: Any = None, async_op: bool = False, device_ids: Any = None) -> Any:
        return barrier(group=group, async_op=async_op)

    dist.barrier = without_devices


PATCH = Patch(
    id="cpu-barrier",
    reason="TorchTitan names the device in each barrier, and gloo refuses device_ids",
    link="https://github.com/pytorch/torchtitan/blob/main/torchtitan/distributed/utils.py",
    needed=no_accelerator,
    apply=_apply,
)
