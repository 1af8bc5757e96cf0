"""Files of a run directory, which anybody may have written: what cannot be read, or has another form, says nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from primus_machine.files import plain_json
from primus_machine.files.atomic import regular
from primus_machine.files.plain_json import whole

__all__ = ["items", "lines", "mapping", "number", "read", "text", "whole"]

_MOST = 1 << 26
"""No document is longer."""
_LONGEST_LINE = 1 << 20
"""No line that Primus writes is longer."""


def read(path: str) -> dict[str, Any]:
    """The JSON object in a file; empty where there is none."""
    try:
        with open(path, "rb", opener=regular) as file:
            return mapping(plain_json.loads(file.read(_MOST)))
    except (OSError, ValueError):
        return {}


def lines(path: str) -> Iterator[dict[str, Any]]:
    """The JSON objects of a file that has one a line. A last line cut short is left out."""
    try:
        with open(path, "rb", opener=regular) as file:
            while line := file.readline(_LONGEST_LINE):
                if line.endswith(b"\n"):
                    yield from _object(line)
    except OSError:
        return


def _object(line: bytes) -> Iterator[dict[str, Any]]:
    try:
        found = plain_json.loads(line.decode(errors="replace"))
    except ValueError:
        return
    if isinstance(found, dict):
        yield found


def mapping(value: Any) -> dict[str, Any]:
    """The value where it is a mapping."""
    return value if isinstance(value, dict) else {}


def items(value: Any) -> list[Any]:
    """The value where it is a list."""
    return value if isinstance(value, list) else []


def text(value: Any) -> str:
    """The value where it is text."""
    return value if isinstance(value, str) else ""


def number(value: Any) -> float | None:
    """The value where it is a number that can be reckoned with."""
    found = plain_json.number(value)
    return None if found is None else float(found)
