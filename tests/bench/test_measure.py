"""Timing: the warm-up ends when the latency is steady, and the figures are those of the samples."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from primus_bench.measure.timing import CpuTimer, Prepare, WarmUp, measure, summary, warm_up

pytestmark = pytest.mark.torch


@dataclass
class Scripted:
    """A device whose latencies are known: a timer and the clock that goes with it."""

    latencies: Iterator[float]
    now_s: float = 0.0
    ran: list[int] = field(default_factory=list)

    def times(self, prepare: Prepare, first: int, count: int) -> list[float]:
        """See `Timer`."""
        found = [next(self.latencies) for _ in range(count)]
        self.now_s += sum(found) / 1000
        self.ran += range(first, first + count)
        return found

    def clock(self) -> float:
        """Seconds that the iterations took so far."""
        return self.now_s


def nothing(iteration: int) -> Callable[[], object]:
    """Work that is scripted elsewhere."""
    return lambda: iteration


def always(ms: float) -> Iterator[float]:
    """The same latency for ever."""
    while True:
        yield ms


def slowing(*steps: tuple[int, float]) -> Iterator[float]:
    """So many iterations of each latency, the last one for ever."""
    for count, ms in steps:
        yield from [ms] * count
    yield from always(steps[-1][1])


def test_a_steady_device_is_warm_soon() -> None:
    device = Scripted(always(1.0))
    warm = warm_up(device, nothing, limit_s=10, clock=device.clock)
    assert warm.steady
    assert warm.seconds < 1
    assert warm.latency_ms == 1.0


def test_a_device_whose_clock_still_changes_is_not_warm() -> None:
    device = Scripted(slowing((1, 500.0), (60, 1.0), (60, 1.2), (60, 1.4), (1, 1.5)))
    warm = warm_up(device, nothing, limit_s=10, clock=device.clock)
    assert warm.steady
    assert warm.latency_ms == 1.5


def test_a_device_that_never_settles_is_measured_after_the_limit_and_said_to_be_unsteady() -> None:
    device = Scripted(ms for _ in range(10**6) for ms in [1.0] * 50 + [2.0] * 50)
    warm = warm_up(device, nothing, limit_s=2, clock=device.clock)
    assert not warm.steady
    assert 2 <= warm.seconds < 2.2


def test_one_very_slow_iteration_is_warm_up_enough() -> None:
    device = Scripted(always(60_000.0))
    assert warm_up(device, nothing, limit_s=2, clock=device.clock).iterations == 1


def test_measuring_lasts_as_long_as_asked_and_goes_on_where_the_warm_up_ended() -> None:
    device = Scripted(always(2.0))
    samples = measure(device, nothing, WarmUp(40, 1.0, 2.0, True), 3.0, lambda _: None, device.clock)
    assert list(samples) == [2.0] * len(samples)
    assert device.now_s == pytest.approx(3.0, abs=0.06)
    assert device.ran == list(range(40, 40 + len(samples)))


def test_a_slow_device_runs_three_iterations_at_least() -> None:
    device = Scripted(always(9000.0))
    assert len(measure(device, nothing, WarmUp(1, 9.0, 9000.0, False), 1.0, lambda _: None, device.clock)) == 3


def test_progress_is_told_how_far_the_measuring_is() -> None:
    device, told = Scripted(always(10.0)), list[float]()
    measure(device, nothing, WarmUp(1, 1.0, 10.0, True), 1.0, told.append, device.clock)
    assert told == sorted(told)
    assert told[-1] == pytest.approx(1.0, abs=0.06)


def test_a_cpu_is_timed_for_the_work_alone_and_not_for_its_preparation() -> None:
    def prepare(_: int) -> Callable[[], object]:
        time.sleep(0.5)
        return lambda: time.sleep(0.004)

    assert all(4.0 <= ms < 500.0 for ms in CpuTimer().times(prepare, 0, 2))


@given(st.lists(st.floats(1e-4, 1e4), min_size=1, max_size=200))
def test_figures_are_the_percentiles_of_the_samples(samples: list[float]) -> None:
    found = summary(samples)
    expected = np.percentile(samples, [50, 5, 95, 100])
    assert [found.median_ms, found.p5_ms, found.p95_ms, found.max_ms] == pytest.approx(expected)
    assert found.iterations == len(samples)
    assert found.p5_ms <= found.median_ms <= found.p95_ms <= found.max_ms
