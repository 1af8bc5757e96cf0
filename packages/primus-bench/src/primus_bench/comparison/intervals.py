"""How much slower one series of samples is than another, with an interval that covers the noise.

Each figure is the ratio of two medians. Its interval is a bootstrap over blocks of neighbouring samples: clocks,
temperature and other loads drift slowly, so that single samples would promise more certainty than there is
(Künsch 1989; Politis and Romano 1992). Of a long series, evenly spaced samples are enough: their median is as good an
estimate, with the wider interval of as many samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["FEWEST", "Slowdown", "Verdict", "slowdown", "step_of", "verdict"]

FEWEST = 5
"""Samples of a series below which no interval is given: a median of fewer can be anything."""
_MOST = 1000
"""Samples of a series that are used: each resample draws as many."""
_RESAMPLES = 2000
_SEED = 1

Verdict = Literal["slower", "faster", "equal", "uncertain"]


@dataclass(frozen=True, slots=True)
class Slowdown:
    """The median of B over the median of A, in time: 1.1 is 10 % slower."""

    ratio: float
    low: float
    high: float


def slowdown(a: Sequence[float], b: Sequence[float], comparisons: int = 1) -> Slowdown:
    """How much longer `b` takes than `a`, both in seconds, none of them 0, with an interval of 95 %.

    `comparisons`: how many are made at once. The interval is as much wider (Bonferroni): all of them hold together.

    Raises:
        ValueError: a series has fewer than `FEWEST` samples.
    """
    import numpy as np

    if min(len(a), len(b)) < FEWEST:
        raise ValueError(f"{min(len(a), len(b))} samples; an interval needs {FEWEST}")
    random = np.random.default_rng(_SEED)
    first, second = (np.asarray(series[:: step_of(len(series))], dtype=float) for series in (a, b))
    ratios = _medians(second, random) / _medians(first, random)
    outside = 5 / comparisons / 2
    low, high = np.percentile(ratios, [outside, 100 - outside])
    return Slowdown(float(np.median(second) / np.median(first)), float(low), float(high))


def step_of(count: int) -> int:
    """Of a series of `count`, use one sample in how many."""
    return -(-count // _MOST) or 1


def _medians(samples: NDArray[np.float64], random: np.random.Generator) -> NDArray[np.float64]:
    """The medians of resamples, each of whole blocks that wrap around at the end."""
    import numpy as np

    count = len(samples)
    block = max(1, round(count ** (1 / 3)))
    starts = random.integers(0, count, size=(_RESAMPLES, -(-count // block)))
    places = (starts[:, :, None] + np.arange(block)) % count
    medians: NDArray[np.float64] = np.median(samples[places.reshape(_RESAMPLES, -1)[:, :count]], axis=1)
    return medians


def verdict(measured: Slowdown, tolerance: float) -> Verdict:
    """What can be said beyond `tolerance` (0.05: 5 %): only where the whole interval says the same."""
    if measured.low > 1 + tolerance:
        return "slower"
    if measured.high < 1 / (1 + tolerance):
        return "faster"
    if measured.low >= 1 / (1 + tolerance) and measured.high <= 1 + tolerance:
        return "equal"
    return "uncertain"
