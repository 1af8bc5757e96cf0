"""Timing: one latency per iteration, after a warm-up that ends when the latency is steady.

A GPU is timed with its own events; a CPU with the clock.
"""

from __future__ import annotations

import math
import statistics
import time
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

__all__ = ["Clock", "CpuTimer", "GpuTimer", "Prepare", "Summary", "Timer", "WarmUp", "measure", "percentile", "summary",
           "timer_for", "warm_up"]  # fmt: skip

Prepare = Callable[[int], Callable[[], object]]
"""`prepare(i)` gives the work of iteration i; only calling that is timed."""

Clock = Callable[[], float]

_BATCH_MS = 50.0
"""Iterations between two looks at the clock; long enough that a GPU is not kept waiting."""
_LARGEST_BATCH = 256
"""A CUDA stream queues 1,024 entries before it blocks the host; an iteration is three or four of them."""
_LEAST_WARM_UP_S = 0.5
_MOST_SAMPLES = 1000
_STEADY_WITHIN = 0.03
_STEADY_BATCHES = 4
_LEAST_ITERATIONS = 3
_MOST_ITERATIONS = 1_000_000


class Timer(Protocol):
    """Runs iterations and says how long each took."""

    def times(self, prepare: Prepare, first: int, count: int) -> list[float]:
        """Milliseconds of the iterations `first` to `first + count - 1`, run in order without a pause."""


class CpuTimer:
    """Times work that is done when the call returns."""

    def times(self, prepare: Prepare, first: int, count: int) -> list[float]:
        """See `Timer`."""
        found = []
        for iteration in range(first, first + count):
            work = prepare(iteration)
            started = time.perf_counter_ns()
            work()
            found.append((time.perf_counter_ns() - started) / 1e6)
        return found


class GpuTimer:
    """Times work on a GPU between two events on the device itself."""

    _LONGEST_HOLD_MS = 20.0
    _CALIBRATION_CYCLES = 10_000_000

    def __init__(self) -> None:
        self._device_ms, self._host_ms = 0.0, 0.1
        _spin(1000)  # the first call loads the kernel
        begin, end = _event(), _event()
        begin.record()
        _spin(self._CALIBRATION_CYCLES)
        end.record()
        torch.cuda.synchronize()
        self._cycles_per_ms = self._CALIBRATION_CYCLES / begin.elapsed_time(end)

    def times(self, prepare: Prepare, first: int, count: int) -> list[float]:
        """See `Timer`."""
        work = [prepare(iteration) for iteration in range(first, first + count)]
        pairs = [(_event(), _event()) for _ in work]
        self._hold(count)
        started = time.perf_counter()
        for (begin, end), call in zip(pairs, work, strict=True):
            begin.record()
            call()
            end.record()
        self._host_ms = (time.perf_counter() - started) * 1000 / count
        torch.cuda.synchronize()
        found = [begin.elapsed_time(end) for begin, end in pairs]
        self._device_ms = statistics.median(found)
        return found

    def _hold(self, count: int) -> None:
        """Keep the device busy while the host queues the batch.

        A kernel shorter than its launch would else be timed with the host's launch gap.
        """
        if self._device_ms < 5 * self._host_ms:
            ms = min(self._LONGEST_HOLD_MS, 1.5 * self._host_ms * count)
            _spin(int(ms * self._cycles_per_ms))


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)


def _spin(cycles: int) -> None:
    """Keep the device busy. CUDA and ROCm both have it, though torch gives it no public name."""
    torch.cuda._sleep(cycles)  # noqa: SLF001


def timer_for(kind: str) -> Timer:
    """The timer for a device of that kind."""
    return CpuTimer() if kind == "cpu" else GpuTimer()


@dataclass(frozen=True, slots=True)
class WarmUp:
    """How the warm-up went. `latency_ms` is the last batch's median."""

    iterations: int
    seconds: float
    latency_ms: float
    steady: bool


def warm_up(timer: Timer, prepare: Prepare, limit_s: float, clock: Clock = time.perf_counter) -> WarmUp:
    """Run until the clock of the device is where it stays: the batches' medians agree, or `limit_s` is over."""
    started, done, count, medians = clock(), 0, 1, list[float]()
    while True:
        medians.append(statistics.median(timer.times(prepare, done, count)))
        done, count = done + count, _batch(medians[-1])
        seconds, steady = clock() - started, _steady(medians)
        if seconds >= limit_s or (steady and seconds >= _LEAST_WARM_UP_S):
            return WarmUp(done, seconds, medians[-1], steady)


def measure(timer: Timer, prepare: Prepare, after: WarmUp, duration_s: float,
            progress: Callable[[float], None], clock: Clock = time.perf_counter) -> array[float]:  # fmt: skip
    """Milliseconds of each iteration for `duration_s`, three iterations at least. Continues the warm-up's rotation."""
    started, samples, count = clock(), array("d"), _batch(after.latency_ms)
    while len(samples) < _LEAST_ITERATIONS or (clock() - started < duration_s and len(samples) < _MOST_ITERATIONS):
        samples.extend(timer.times(prepare, after.iterations + len(samples), count))
        progress(clock() - started)
    return samples


def _batch(latency_ms: float) -> int:
    return max(1, min(_LARGEST_BATCH, int(_BATCH_MS / max(latency_ms, 1e-6))))


def _steady(medians: Sequence[float]) -> bool:
    last = medians[-_STEADY_BATCHES:]
    return len(last) == _STEADY_BATCHES and max(last) <= min(last) * (1 + _STEADY_WITHIN)


@dataclass(frozen=True, slots=True)
class Summary:
    """The distribution of the latencies, in milliseconds."""

    iterations: int
    median_ms: float
    p5_ms: float
    p95_ms: float
    max_ms: float

    def spread(self) -> dict[str, float]:
        """The figures beside the median, for a case's derived ones."""
        return {
            "iterations": self.iterations, "p5_ms": self.p5_ms, "p95_ms": self.p95_ms, "max_ms": self.max_ms
        }  # fmt: skip


def summary(samples: Sequence[float]) -> Summary:
    """Sum up `samples`, at least one."""
    ordered = sorted(samples)
    median, p5, p95 = (percentile(ordered, part) for part in (0.5, 0.05, 0.95))
    return Summary(len(ordered), median, p5, p95, ordered[-1])


def percentile(ordered: Sequence[float], part: float) -> float:
    """The value below which `part` of the `ordered` values lie, interpolated linearly between two of them."""
    place = part * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def thinned(samples: Sequence[float]) -> list[float]:
    """At most a thousand of them, evenly spaced: a short kernel has a million in a second."""
    step = -(-len(samples) // _MOST_SAMPLES) or 1
    return list(samples[::step])
