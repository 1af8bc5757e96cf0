"""Numbers of things, as people write them."""

from __future__ import annotations

__all__ = ["counted", "time_span"]


def counted(number: int, thing: str) -> str:
    """`1 GPU`, `8 GPUs`."""
    return f"{number} {thing}{'s' * (number != 1)}"


def time_span(seconds: float) -> str:
    """`30 s`, `10 min`, `1 min 15 s`."""
    minutes, rest = divmod(round(seconds), 60)
    parts = [f"{minutes} min"] * bool(minutes) + [f"{rest} s"] * bool(rest or not minutes)
    return " ".join(parts)
