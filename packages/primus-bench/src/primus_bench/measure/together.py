"""The same work on all ranks at once, each on its own device: how long it takes there, and where it takes longest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypedDict

from primus_bench.measure.ranks import Ranks
from primus_bench.measure.timing import Prepare, Summary, measure, percentile, summary, thinned, timer_for, warm_up

__all__ = ["WARM_UP", "Slowest", "Together", "always", "gathered", "timed"]

_WARM_UP_S = 2.0
WARM_UP = f"until the latency is steady, at most {_WARM_UP_S:g} s"
"""For the method of a result."""


class Slowest(TypedDict):
    """The parts of a case that follow from the slowest rank."""

    samples_s: list[float]
    median_s: float
    rank: int
    node: str
    unsteady: str


@dataclass(frozen=True, slots=True)
class Together:
    """What rank 0 knows of it."""

    medians_ms: Sequence[float]
    """By rank."""
    samples_ms: Sequence[float]
    """Of the slowest rank."""
    unsteady: Sequence[int] = ()
    """Ranks whose latency was not steady after the warm-up."""

    @property
    def slowest(self) -> int:
        """The rank with the largest median."""
        return max(range(len(self.medians_ms)), key=self.medians_ms.__getitem__)

    @property
    def lag_percent(self) -> float:
        """How much longer the slowest rank takes than the median of all ranks."""
        return 100 * (self.medians_ms[self.slowest] / percentile(sorted(self.medians_ms), 0.5) - 1)

    @property
    def latency(self) -> Summary:
        """Of the slowest rank."""
        return summary(self.samples_ms)

    def of_slowest(self, hosts: Sequence[str]) -> Slowest:
        """For the case. `hosts`: by rank."""
        return {
            "samples_s": thinned([ms / 1000 for ms in self.samples_ms]), "median_s": self.latency.median_ms / 1000,
            "rank": self.slowest, "node": hosts[self.slowest], "unsteady": self._warm_up(),
        }  # fmt: skip

    def _warm_up(self) -> str:
        on = f" on rank {', '.join(map(str, self.unsteady))}" if len(self.medians_ms) > 1 else ""
        return f"the latency was not steady when the warm-up ended{on}" if self.unsteady else ""


def always(run: Callable[[], object]) -> Prepare:
    """The same work in every iteration."""
    return lambda _: run


def timed(
    prepare: Prepare, kind: str, duration_s: float, ranks: Ranks, warm_up_s: float = _WARM_UP_S
) -> Together | None:
    """Run it again and again on the device of that kind, on all ranks at once; the times, on rank 0."""
    timer = timer_for(kind)
    ranks.exchange(None)
    warm = warm_up(timer, prepare, warm_up_s)
    samples = measure(timer, prepare, warm, duration_s, lambda _: None)
    return gathered(list(samples), ranks, steady=warm.steady)


def gathered(samples: Sequence[float], ranks: Ranks, *, steady: bool) -> Together | None:
    """What all ranks found, on rank 0. `samples`: milliseconds of this rank's iterations."""
    everyone = ranks.exchange([summary(samples).median_ms, steady])
    medians = [median for median, _ in everyone]
    slowest = max(range(len(medians)), key=medians.__getitem__)
    found = ranks.collect(list(samples) if ranks.place.rank == slowest else [])
    unsteady = [rank for rank, (_, is_steady) in enumerate(everyone) if not is_steady]
    return Together(medians, found[slowest], unsteady) if found else None
