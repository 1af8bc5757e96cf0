"""JSON that every reader takes: JSON knows no NaN and no infinity, so such a number is written as null."""

from __future__ import annotations

import json
import math
from typing import Any

__all__ = ["dumps", "loads"]


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


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list | tuple) else value
