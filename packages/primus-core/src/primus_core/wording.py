"""Numbers of things, as people write them."""

from __future__ import annotations

__all__ = ["counted"]


def counted(number: int, thing: str) -> str:
    """`1 GPU`, `8 GPUs`."""
    return f"{number} {thing}{'s' * (number != 1)}"
