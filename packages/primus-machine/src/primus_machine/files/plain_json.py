"""JSON that every reader takes: JSON knows no NaN and no infinity, so such a number is written as null."""

from __future__ import annotations

import json
import math
from typing import Any

__all__ = ["dumps", "loads", "number", "whole"]

_LARGEST = 1e100
"""No quantity of a run is larger; sums and products of such numbers are finite."""
_LARGEST_WHOLE = 1 << 62
"""No count of steps, tokens or bytes is larger."""


def dumps(value: Any, **options: Any) -> str:
    """`json.dumps` with null in place of each number that is not finite."""
    try:
        return json.dumps(value, allow_nan=False, **options)
    except ValueError:  # seldom: looking first would cost each time
        return json.dumps(_finite(value), allow_nan=False, **options)


def loads(text: str | bytes) -> Any:
    """The value that JSON text says.

    Raises:
        ValueError: it is no JSON, or brackets are nested so deeply that nobody meant it.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except (json.JSONDecodeError, UnicodeError):
        raise
    except ValueError:  # whose text speaks of Python's own limits
        raise ValueError("a number in it has thousands of digits") from None


def number(value: Any) -> float | None:
    """The value of a file that anybody may have written, where it is a finite number that can be reckoned with."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number and abs(value) < _LARGEST else None


def whole(value: Any) -> int | None:
    """The same, where it is a whole number of a size that steps and bytes have."""
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    return value if is_whole and abs(value) < _LARGEST_WHOLE else None


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list | tuple) else value
