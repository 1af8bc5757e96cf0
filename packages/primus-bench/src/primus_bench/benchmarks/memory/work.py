"""What moves the bytes, how many it moves, and whether it moved the right ones."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

from primus_bench.benchmarks.memory.options import INSIDE

__all__ = ["DTYPES", "Work", "arrays", "make"]

DTYPES = {"fp64": torch.float64, "fp32": torch.float32, "bf16": torch.bfloat16}
_FACTOR = 3
_PERIODS = (31, 37)
"""The arrays count up to these, again and again: b + 3·c is at most 138, which bf16 holds exactly."""


@dataclass(frozen=True, slots=True)
class Work:
    """One operation with its arrays."""

    run: Callable[[], object]
    target: torch.Tensor
    expected: Callable[[torch.Tensor], torch.Tensor]
    """What stands at the places that a tensor of indices names."""
    bytes_moved: int
    """Read and written; for a transfer between host and GPU, what crosses the bus."""

    def wrong(self) -> str:
        """Run it once, and say what is wrong with the result; empty: nothing."""
        self.target.fill_(math.nan)  # what stays unwritten must not pass
        self.run()
        for start in range(0, self.target.numel(), _AT_ONCE):
            part = self.target[start : start + _AT_ONCE]
            places = torch.arange(start, start + len(part), device=part.device)
            if len(bad := (part != self.expected(places).to(part.dtype)).nonzero()):
                at = int(bad[0])
                right = self.expected(places[at : at + 1]).item()
                return f"element {start + at} is {part[at].item():g}, not {right:g}"
        return ""


_AT_ONCE = 1 << 24


def arrays(operation: str) -> int:
    """How many it needs."""
    return 3 if operation == "triad" else 2


def make(operation: str, size: int, dtype: torch.dtype, device: str) -> Work:
    """The operation with arrays of `size` bytes each."""
    count = max(1, size // dtype.itemsize)
    if operation not in INSIDE:
        return _transfer(operation, count, dtype, device)
    target, source = torch.empty(count, dtype=dtype, device=device), _counted(count, _PERIODS[0], dtype, device)
    moved = count * dtype.itemsize
    if operation == "copy":
        return Work(lambda: target.copy_(source), target, _first, 2 * moved)
    other = _counted(count, _PERIODS[1], dtype, device)
    return Work(lambda: torch.add(source, other, alpha=_FACTOR, out=target), target, _sum, 3 * moved)


def _transfer(operation: str, count: int, dtype: torch.dtype, device: str) -> Work:
    pinned, to_device = not operation.endswith("-pageable"), operation.startswith("h2d")
    source = _counted(count, _PERIODS[0], dtype, "cpu" if to_device else device)
    target = torch.empty(count, dtype=dtype, device=device if to_device else "cpu")
    if pinned:
        source, target = (source.pin_memory(), target) if to_device else (source, target.pin_memory())

    def run() -> None:
        target.copy_(source, non_blocking=pinned)

    return Work(run, target, _first, count * dtype.itemsize)


def _counted(count: int, period: int, dtype: torch.dtype, device: str) -> torch.Tensor:
    one = torch.arange(period, device=device).to(dtype)
    return one.repeat(-(-count // period))[:count].clone()


def _first(places: torch.Tensor) -> torch.Tensor:
    return places % _PERIODS[0]


def _sum(places: torch.Tensor) -> torch.Tensor:
    return places % _PERIODS[0] + _FACTOR * (places % _PERIODS[1])
