"""Lets TorchTitan's device be the CPU: where no accelerator is it takes CUDA for granted, and asks for its memory."""

from __future__ import annotations

import math
import os
import resource
import sys
import types
from typing import Any

from primus_torchtitan.patches._patch import no_accelerator, patch

__all__ = ["PATCH"]


class CpuDevice(types.ModuleType):
    """`torch.cpu`, with what TorchTitan's metrics ask of an accelerator, answered by the operating system."""

    def __getattr__(self, name: str) -> Any:
        import torch

        return getattr(torch.cpu, name)

    def current_device(self) -> int:
        return 0

    def get_device_name(self, device: object = None) -> str:
        return "CPU"

    def get_device_properties(self, device: object = None) -> Any:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return types.SimpleNamespace(name="CPU", total_memory=total)

    def memory_stats(self, device: object = None) -> dict[str, int]:
        """The peak of the process; unlike a device's it cannot be reset."""
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        return {
            "active_bytes.all.peak": peak,
            "reserved_bytes.all.peak": peak,
            "num_alloc_retries": 0,
            "num_ooms": 0,
        }

    def reset_peak_memory_stats(self, device: object = None) -> None:
        """Nothing to reset."""

    def empty_cache(self) -> None:
        """No cache."""


def _unknown_peak(device_name: str) -> float:
    """TorchTitan would warn, and take an A100's."""
    return math.nan


def _apply() -> None:
    late = [name for name in sys.modules if name.startswith(("torchtitan.trainer", "torchtitan.components.metrics"))]
    assert not late, f"modules that keep a copy of the device are imported already: {late}"
    from torchtitan.tools import utils

    utils.device_type, utils.device_module = "cpu", CpuDevice("primus_torchtitan_cpu_device")
    utils.get_peak_flops = _unknown_peak


PATCH = patch(
    id="cpu-device",
    reason="without an accelerator TorchTitan 0.3 falls back to 'cuda' and fails in torch.cuda.set_device",
    link="https://github.com/pytorch/torchtitan/blob/main/torchtitan/tools/utils.py",
    needed=no_accelerator,
    apply=_apply,
)
