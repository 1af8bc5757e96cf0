"""What two measurements of one benchmark say beside each other: slower, equal, or uncertain."""

from __future__ import annotations

import random

import pytest

from primus_bench.comparison.intervals import slowdown, verdict


def _measured(seed: int, scale: float = 1.0) -> list[float]:
    """A hundred times of a machine with noise of 2 %, slow drift, and stalls."""
    noise, drift, times = random.Random(seed), 0.0, []
    for _ in range(100):
        drift = 0.95 * drift + noise.gauss(0, 0.002)
        stall = noise.uniform(1.2, 3) if noise.random() < 0.03 else 1
        times.append(1e-3 * scale * (1 + drift + noise.gauss(0, 0.02)) * stall)
    return times


def _verdicts(scale: float) -> list[str]:
    pairs = [(_measured(seed), _measured(1000 + seed, scale)) for seed in range(20)]
    return [verdict(slowdown(a, b, comparisons=8), 0.03) for a, b in pairs]


@pytest.mark.full
def test_of_twenty_equal_pairs_at_most_one_is_slower() -> None:
    assert _verdicts(1.0).count("slower") <= 1


@pytest.mark.full
def test_of_twenty_slow_downs_by_a_tenth_at_least_nineteen_are_found() -> None:
    assert _verdicts(1.1).count("slower") >= 19


def test_what_the_noise_covers_is_uncertain_and_not_equal() -> None:
    a = [1.0, 1.5, 0.7, 1.2, 0.9, 1.4]
    assert verdict(slowdown(a, [1.05 * x for x in a]), 0.03) == "uncertain"


def test_a_series_of_four_samples_gets_no_interval() -> None:
    with pytest.raises(ValueError, match="4 samples; an interval needs 5"):
        slowdown([1.0] * 4, [1.0] * 9)
