"""Whether the machine was steady while a benchmark ran, by the samples of its cases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median, quantiles
from typing import Any

__all__ = ["steadiness"]

_FEWEST = 10
_DRIFT, _SPREAD = 0.05, 0.25
"""Shares of the median: what clocks and heat do within a run, and what another program on the same CPUs does."""


def steadiness(cases: Sequence[tuple[str, Sequence[float]]]) -> Mapping[str, Any]:
    """Judge it by name and samples, in their order, of each case. `steady` is None where too little was measured."""
    known = [(name, samples) for name, samples in cases if len(samples) >= _FEWEST]
    if not known:
        return {"steady": None, "why": f"no case has {_FEWEST} samples"}
    found = [f"{name}: {why}" for name, samples in known if (why := _unsteady(samples))]
    return {"steady": not found, "why": "; ".join(found[:3]) + f"; {len(found) - 3} more" * (len(found) > 3)}


def _unsteady(samples: Sequence[float]) -> str:
    """How the samples change while it runs, or how much they differ; empty: hardly."""
    whole, half = median(samples), len(samples) // 2
    drift = median(samples[half:]) / median(samples[:half]) - 1 if median(samples[:half]) else 0.0
    low, _, high = quantiles(samples, n=4)
    if abs(drift) > _DRIFT:
        return f"the second half took {drift:+.0%}"
    spread = (high - low) / whole if whole else 0.0
    return f"half of the samples differ by more than {spread:.0%}" if spread > _SPREAD else ""
