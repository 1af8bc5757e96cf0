"""How figures and texts are shown: numbers in units that people read, and nothing that a terminal obeys."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

from primus_machine.secrets.redaction import redact
from primus_page.parts import Card
from primus_report.figures.figure import Figure
from primus_report.figures.steps import Steps

__all__ = ["amount", "card", "clock", "duration", "redacted", "share", "value"]

T = TypeVar("T")


def card(figure: Figure) -> Card:
    """A figure for a page."""
    return Card(figure.title, value(figure), figure.is_known, figure.source)


def value(figure: Figure) -> str:
    """A figure with its unit, or why there is none."""
    if figure.value is None:
        return figure.why
    return amount(figure.value, figure.unit)


def amount(number: float, unit: str) -> str:
    """A number with its unit."""
    if unit == "share":
        return share(number)
    if unit == "s" and abs(number) >= 60:
        return duration(number)
    if unit in ("steps", "tokens/s") and abs(number) >= 100:
        return f"{number:,.0f} {unit}".removesuffix(" steps")
    digits = f"{number:,.2f}" if abs(number) >= 1000 else f"{number:.4g}"
    return f"{digits} {unit}".strip().removesuffix(" steps")


def share(number: float) -> str:
    """A part of a whole, in per cent."""
    return f"{number:.1%}"


def duration(seconds: float) -> str:
    """A time in its two largest units."""
    if abs(seconds) < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    units = [(days, "d"), (hours, "h"), (minutes, "min"), (rest, "s")]
    first = next(index for index, (count, _) in enumerate(units) if count)
    return " ".join(f"{count} {unit}" for count, unit in units[first : first + 2])


def clock(seconds: float | None) -> str:
    """A moment, in local time."""
    if seconds is None:
        return "not recorded"
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))
    except (OverflowError, ValueError, OSError):
        return "?"


def redacted(found: T, secrets: tuple[str, ...]) -> T:
    """The same data; in each of its texts, secrets are replaced by `<secret>`."""
    result: Any = found
    if isinstance(found, str):
        result = redact(found, secrets)
    elif isinstance(found, Mapping):
        result = {key: redacted(one, secrets) for key, one in found.items()}
    elif isinstance(found, list | tuple) and not hasattr(found, "_fields"):
        result = type(found)(redacted(one, secrets) for one in found)
    elif is_dataclass(found) and not isinstance(found, type | Steps):
        result = replace(found, **{f.name: redacted(getattr(found, f.name), secrets) for f in fields(found)})
    return result  # type: ignore[no-any-return]
