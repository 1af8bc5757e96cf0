"""Free memory of this process goes back to the system. All of it is a matter of glibc; others have no such calls.

Source: mallopt(3). By default, what is freed once in a large piece is kept in the heap from then on.
"""

from __future__ import annotations

import ctypes

__all__ = ["give_back", "keep_little"]

_MMAP_THRESHOLD, _TOP_PAD = -3, -2
"""`M_MMAP_THRESHOLD` and `M_TOP_PAD` of malloc.h."""
_LARGE = 2_000_000
"""Bytes of what gets pages of its own, which go when it is freed. Smaller pieces would be mapped again and again."""
_AHEAD = 1 << 22
"""Bytes that the heap takes beyond what is asked for: the system is asked less often."""


def give_back() -> None:
    """Give back what is free: a vocabulary of 128,000 tokens leaves 100 MB behind."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def keep_little() -> None:
    """Give back each large piece as it is freed, from now on."""
    option = getattr(ctypes.CDLL(None), "mallopt", None)
    if option is not None:
        option(_MMAP_THRESHOLD, _LARGE)
        option(_TOP_PAD, _AHEAD)
