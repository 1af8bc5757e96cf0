"""How much of a message crosses the links: the factors of nccl-tests (doc/PERFORMANCE.md)."""

from __future__ import annotations

__all__ = ["OPERATIONS", "algorithm_gb_per_s", "bus_gb_per_s", "factor"]

OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send_recv")


def factor(operation: str, ranks: int) -> float:
    """By what to multiply the bandwidth that the program sees, to have that of the slowest link of a ring."""
    if operation in ("broadcast", "send_recv"):
        return 1.0
    return (2 if operation == "all_reduce" else 1) * (ranks - 1) / ranks


def algorithm_gb_per_s(size: int, seconds: float) -> float:
    """Bytes of the message by its time. The message of `all_gather` is what a rank receives, of `reduce_scatter` and
    `all_to_all` what it sends: all ranks' parts.
    """
    return size / seconds / 1e9


def bus_gb_per_s(operation: str, ranks: int, size: int, seconds: float) -> float | None:
    """What to compare with the speed of a link; None for one rank, which sends nothing to anybody."""
    return algorithm_gb_per_s(size, seconds) * factor(operation, ranks) if ranks > 1 else None
