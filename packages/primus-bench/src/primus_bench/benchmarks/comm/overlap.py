"""A collective while the device multiplies matrices, as in training: how much of the one the other hides."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

import torch

__all__ = ["Gemm", "Overlapped", "beside"]

_SIZES = {"cpu": (512, torch.float32), "cuda": (4096, torch.bfloat16)}
_MOST = 1000


class Overlapped(NamedTuple):
    """Seconds, on the slowest rank."""

    collective_s: float
    gemm_s: float
    together_s: float

    @property
    def hidden_percent(self) -> float:
        """100: together they take as long as the longer one; 0: as long as one after the other; below: even longer."""
        saved = self.collective_s + self.gemm_s - self.together_s
        return 100 * saved / min(self.collective_s, self.gemm_s)


class Gemm:
    """The multiplication, as often as the collective leaves time for."""

    def __init__(self, device: str) -> None:
        size, dtype = _SIZES[device]
        self._a, self._b = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
        self._c = torch.empty_like(self._a)

    def once(self) -> object:
        """Multiply."""
        return torch.matmul(self._a, self._b, out=self._c)

    def lasting(self, seconds: float, one_s: float) -> Callable[[], object]:
        """So many of them that they take about as long, where one takes `one_s`."""
        count = max(1, min(_MOST, round(seconds / one_s)))
        return lambda: [self.once() for _ in range(count)]


@contextmanager
def beside(collective: Callable[[], object], gemm: Callable[[], object], device: str) -> Iterator[Callable[[], object]]:
    """Both at once: on two streams of a GPU, in two threads of a CPU."""
    if device == "cuda":
        yield partial(_on_streams, torch.cuda.Stream(), collective, gemm)
        return
    with ThreadPoolExecutor(1, "collective") as pool:
        yield partial(_in_threads, pool, collective, gemm)


def _in_threads(pool: ThreadPoolExecutor, collective: Callable[[], object], gemm: Callable[[], object]) -> None:
    running = pool.submit(collective)
    gemm()
    running.result()


def _on_streams(side: torch.cuda.Stream, collective: Callable[[], object], gemm: Callable[[], object]) -> None:
    main = torch.cuda.current_stream()
    side.wait_stream(main)  # not before what was queued earlier
    with torch.cuda.stream(side):
        collective()
    gemm()
    main.wait_stream(side)
