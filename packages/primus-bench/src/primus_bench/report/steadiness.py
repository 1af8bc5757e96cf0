"""Whether the machine was steady while a benchmark ran, by the warm-up and the samples of its cases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median, quantiles
from typing import Any

__all__ = ["steadiness"]

_FEWEST = 10
_DRIFT, _SPREAD = 0.05, 0.25
"""Shares of the median: what clocks and heat do within a run, and what another program on the same CPUs does."""
_LATE, _OFTEN = 3, 0.05
"""A sample of so many times the median was held up. One alone is an interruption; this share puts the p95 there."""


def steadiness(cases: Sequence[tuple[str, Sequence[float], str]]) -> Mapping[str, Any]:
    """Judge it by name and samples, in their order, of each case, and by what was unsteady besides.

    `steady` is None where too little was measured; `cases` has why each is not.
    """
    found = {name: why for name, samples, besides in cases if (why := besides or _unsteady(samples))}
    if not found and all(len(samples) < _FEWEST for _, samples, _ in cases):
        return {"steady": None, "why": f"no case has {_FEWEST} samples", "cases": {}}
    named = [f"{name}: {why}" for name, why in found.items()]
    why = "; ".join(named[:3]) + f"; {len(named) - 3} more" * (len(named) > 3)
    return {"steady": not found, "why": why, "cases": found}


def _unsteady(samples: Sequence[float]) -> str:
    """How the samples change while it runs, or how much they differ; empty: hardly, or there are few."""
    if len(samples) < _FEWEST:
        return ""
    whole, half = median(samples), len(samples) // 2
    drift = median(samples[half:]) / median(samples[:half]) - 1 if median(samples[:half]) else 0.0
    low, _, high = quantiles(samples, n=4)
    if abs(drift) > _DRIFT:
        return f"the second half took {drift:+.0%}"
    spread = (high - low) / whole if whole else 0.0
    if spread > _SPREAD:
        return f"half of the samples differ by more than {spread:.0%}"
    late = sum(sample > _LATE * whole for sample in samples)
    often = late > max(1, _OFTEN * len(samples))
    return f"{late / len(samples):.0%} of the samples took over {_LATE} times the median" if often else ""
