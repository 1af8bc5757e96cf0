"""What differs between two sets of settings, by dotted name. Pure: data to data."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

__all__ = ["Path", "differing", "dotted", "flatten", "same"]

Path = tuple[str | int, ...]


class _Missing:
    """What one of the two runs does not have: unlike None, which may be a setting's value."""


_MISSING = _Missing()


def flatten(value: Any) -> dict[Path, Any]:
    """Nested settings by path. A list of plain values, and what is empty, stays whole: it reads best so."""
    return dict(_leaves(value, ()))


def _leaves(value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    if isinstance(value, Mapping) and value:
        for key, below in value.items():
            yield from _leaves(below, (*path, str(key)))
    elif isinstance(value, list) and any(isinstance(item, Mapping | list) for item in value):
        for index, below in enumerate(value):
            yield from _leaves(below, (*path, index))
    else:
        yield path, value


def dotted(path: Path) -> str:
    """A path as one reads it: `optimizer.groups[0].lr`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).removeprefix(".")


def differing(before: Mapping[Any, Any], after: Mapping[Any, Any]) -> Iterator[tuple[str, str, str]]:
    """Name and both values, as text, of what is not the same. Empty: one of the two does not have it."""
    for key in dict.fromkeys([*before, *after]):
        old, new = before.get(key, _MISSING), after.get(key, _MISSING)
        if not same(old, new):
            yield (dotted(key) if isinstance(key, tuple) else str(key), *_texts(old, new))


def same(a: Any, b: Any) -> bool:
    """Equal as settings: 1 is 1.0, but not true, and not a number is not a number."""
    if isinstance(a, _Missing) or isinstance(b, _Missing):
        return a is b
    return a == b if _is_number(a) and _is_number(b) and a == a else _json(a) == _json(b)  # noqa: PLR0124  # NaN


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)  # YAML has dates


def _texts(a: Any, b: Any) -> tuple[str, str]:
    """Both values as text; as JSON where they would look the same ('1' and 1)."""
    plain = _text(a), _text(b)
    return plain if plain[0] != plain[1] else (_text(a, _json), _text(b, _json))


def _text(value: Any, write: Callable[[Any], str] | None = None) -> str:
    if isinstance(value, _Missing):
        return ""
    return value if isinstance(value, str) and not write else (write or _json)(value)
