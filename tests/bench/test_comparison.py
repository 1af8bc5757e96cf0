"""What two measurements of one benchmark say beside each other: slower, equal, or uncertain."""

from __future__ import annotations

import random

import pytest

from primus_bench.comparison.intervals import slowdown, step_of, verdict


def _measured(seed: int, scale: float = 1.0, count: int = 100) -> list[float]:
    """So many times of a machine with noise of 2 %, slow drift, and stalls."""
    noise, drift, times = random.Random(seed), 0.0, []
    for _ in range(count):
        drift = 0.95 * drift + noise.gauss(0, 0.002)
        stall = noise.uniform(1.2, 3) if noise.random() < 0.03 else 1
        times.append(1e-3 * scale * (1 + drift + noise.gauss(0, 0.02)) * stall)
    return times


def _verdicts(scale: float, count: int) -> list[str]:
    pairs = [(_measured(seed, 1.0, count), _measured(1000 + seed, scale, count)) for seed in range(20)]
    return [verdict(slowdown(a, b, comparisons=8), 0.03) for a, b in pairs]


@pytest.mark.full
@pytest.mark.parametrize("count", [100, 3000])
def test_of_twenty_equal_pairs_at_most_one_is_slower(count: int) -> None:
    assert _verdicts(1.0, count).count("slower") <= 1


@pytest.mark.full
@pytest.mark.parametrize("count", [100, 3000])
def test_of_twenty_slow_downs_by_a_tenth_at_least_nineteen_are_found(count: int) -> None:
    assert _verdicts(1.1, count).count("slower") >= 19


def test_a_million_samples_are_compared_by_a_thousand_of_them() -> None:
    long = [1.0, 1.01, 0.99, 1.02] * 250_000
    assert step_of(len(long)) == 1000
    assert slowdown(long, long) == slowdown(long[::1000], long[::1000])
    assert [step_of(count) for count in (5, 1000, 1001)] == [1, 1, 2]


def test_what_the_noise_covers_is_uncertain_and_not_equal() -> None:
    a = [1.0, 1.5, 0.7, 1.2, 0.9, 1.4]
    assert verdict(slowdown(a, [1.05 * x for x in a]), 0.03) == "uncertain"


def test_a_series_of_four_samples_gets_no_interval() -> None:
    with pytest.raises(ValueError, match="4 samples; an interval needs 5"):
        slowdown([1.0] * 4, [1.0] * 9)
