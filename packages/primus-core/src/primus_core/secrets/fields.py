"""The fields of a log record as plain JSON values, with secrets masked: by the field's name, by shape, and by value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from primus_core.secrets.names import SECRET, says_secret
from primus_core.secrets.redaction import redact

__all__ = ["masked"]

_DEEPEST = 10
"""A structure below so many others is written as text: it may contain itself."""


def masked(record: Mapping[str, Any], values: Iterable[str]) -> dict[str, Any]:
    """`record` with `<secret>` where its fields' names, or what they hold, say so. `values`: known secrets.

    What JSON does not know is written as `str` shows it.
    """
    return _mapping(record, tuple(values), hidden=False, depth=0)


def _mapping(found: Mapping[Any, Any], values: tuple[str, ...], *, hidden: bool, depth: int) -> dict[str, Any]:
    return {
        redact(str(key), values): _plain(value, values, hidden=hidden or _hides(str(key), value), depth=depth + 1)
        for key, value in found.items()
    }


def _hides(key: str, value: Any) -> bool:
    """Whether a field's name says that it is secret: `token=50256` is a piece of text, and `has_password=True` none."""
    if value is None or isinstance(value, bool) or not says_secret(key):
        return False
    return not (isinstance(value, int | float) and "token" in key.lower())


def _plain(value: Any, values: tuple[str, ...], *, hidden: bool, depth: int) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if depth < _DEEPEST:
        if isinstance(value, Mapping):
            return _mapping(value, values, hidden=hidden, depth=depth)
        if isinstance(value, list | tuple | set | frozenset):
            return [_plain(item, values, hidden=hidden, depth=depth + 1) for item in value]
    if hidden:
        return SECRET
    return value if isinstance(value, int | float) else redact(str(value), values)
