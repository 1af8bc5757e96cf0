"""Values that reveal a wrong result: whole numbers that depend on rank and place, and whose sums are exact.

Each buffer repeats one period. It is prime, so that a part of a message in the place of another does not fit.
"""

from __future__ import annotations

from functools import lru_cache

import torch

__all__ = ["difference", "expected_sum", "fill", "moved", "term"]

PERIOD = 65521
_EXACT = {torch.bfloat16: 2**8, torch.float16: 2**11, torch.float32: 2**24, torch.int32: 2**24}
"""Up to where every whole number has a form of its own in the type."""
_LARGEST = 251


def term(rank: int, ranks: int, dtype: torch.dtype, device: str = "cpu") -> torch.Tensor:
    """One period of what a rank adds to a sum. No partial sum, in any order, leaves the exact numbers.

    Where there are more ranks than exact numbers, only some add something at each place, and all at some.
    """
    limit = _EXACT[dtype]
    half = max(1, min(_LARGEST // 2, limit // ranks))
    stride = -(-ranks // limit)
    place = torch.arange(PERIOD, device=device)
    value = (place * 31 + place // 7 + rank * 17 + rank * rank * 3) % (2 * half + 1) - half
    return (value * (place % stride == rank % stride)).to(dtype)


@lru_cache(maxsize=8)  # of a thousand ranks, it takes a second; each check of each size asks for it
def expected_sum(ranks: int, dtype: torch.dtype, device: str = "cpu") -> torch.Tensor:
    """One period of the sum over all ranks. Nobody may change it."""
    total = torch.zeros(PERIOD, dtype=torch.int64, device=device)
    for rank in range(ranks):
        total += term(rank, ranks, dtype, device).to(torch.int64)
    return total.to(dtype)


def moved(source: int, target: int, dtype: torch.dtype, device: str = "cpu") -> torch.Tensor:
    """One period of what `source` sends to `target`."""
    place, key = torch.arange(PERIOD, device=device), source * 1009 + target
    return ((place * (31 + 2 * (key % 97)) + place // 7 + key * 17) % _LARGEST).to(dtype)


def fill(buffer: torch.Tensor, period: torch.Tensor) -> None:
    """Repeat `period` in the whole of `buffer`."""
    for part, values in _parts(buffer, period):
        part.copy_(values)


def difference(found: torch.Tensor, period: torch.Tensor) -> str:
    """What is wrong in `found`, which should repeat `period`; empty: nothing."""
    wrong, first = 0, -1
    done = 0
    for part, values in _parts(found, period):
        places = (part != values).reshape(-1).nonzero()  # NaN differs from everything
        if len(places) and first < 0:
            first = done + int(places[0])
        wrong += len(places)
        done += part.numel()
    if not wrong:
        return ""
    right = period[first % PERIOD].item()
    return f"element {first} is {found[first].item():g}, not {right:g}; {wrong} of {found.numel()} are wrong"


def _parts(buffer: torch.Tensor, period: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor]]:
    whole = buffer.numel() // PERIOD * PERIOD
    rest = (buffer[whole:], period[: buffer.numel() - whole])
    return [(buffer[:whole].view(-1, PERIOD), period), rest] if whole else [rest]
