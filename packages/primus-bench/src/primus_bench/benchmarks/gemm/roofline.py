"""The roofline of a device: which of its limits a multiplication meets first (Williams et al., CACM 52(4), 2009)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from primus_bench.benchmarks.gemm.problem import Problem
from primus_bench.measure.device import Device

__all__ = ["Roofline", "of"]


@dataclass(frozen=True, slots=True)
class Roofline:
    """The limits for one data type, from the table of GPUs; None where it has no number."""

    peak_tflops: float | None
    reachable_tflops: float | None
    memory_tb_per_s: float | None

    @property
    def ridge(self) -> float | None:
        """FLOP for each byte at which both limits meet."""
        return self.peak_tflops / self.memory_tb_per_s if self.peak_tflops and self.memory_tb_per_s else None

    def figures(self, problem: Problem, tflops: float) -> dict[str, Any]:
        """How near the limits a speed is. `roof_tflops` is the lower one of both."""
        ridge, roof = self.ridge, None
        if self.peak_tflops and self.memory_tb_per_s:
            roof = min(self.peak_tflops, problem.intensity * self.memory_tb_per_s)
        return {
            "flop_per_byte": problem.intensity,
            "ridge_flop_per_byte": ridge,
            "bound": None if ridge is None else "memory" if problem.intensity < ridge else "compute",
            "roof_tflops": roof,
            "percent_of_roof": _percent(tflops, roof),
            "percent_of_peak": _percent(tflops, self.peak_tflops),
            "percent_of_reachable": _percent(tflops, self.reachable_tflops),
        }


def of(device: Device, dtype: str) -> Roofline:
    """The device's share of its model's limits."""
    if not device.model:
        return Roofline(None, None, None)
    model = device.model
    peak, reachable = device.limit(model.peak_tflops, dtype), device.limit(model.reachable_tflops, dtype)
    return Roofline(peak, reachable, model.memory_tb_per_s * device.share)


def _percent(tflops: float, limit: float | None) -> float | None:
    return 100 * tflops / limit if limit else None
