"""The fields of a log record as plain JSON values, with secrets masked: by the field's name, by shape, and by value."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from primus_machine.secrets.names import SECRET, says_secret
from primus_machine.secrets.redaction import redact, redact_text

__all__ = ["as_text", "masked"]

_DEEPEST = 10
"""A structure below so many others is written as text: it may contain itself."""


def masked(record: Mapping[str, Any], values: Iterable[str]) -> dict[str, Any]:
    """`record` with `<secret>` where its fields' names, or what they hold, say so. `values`: known secrets.

    A sequence is masked as the words of a command line. A dataclass and a named tuple become mappings: the names of
    their fields say what is secret, too. What JSON does not know otherwise is written as `str` shows it.
    """
    return _mapping(record, tuple(values), hidden=False, depth=0)


def _mapping(found: Mapping[Any, Any], values: tuple[str, ...], *, hidden: bool, depth: int) -> dict[str, Any]:
    return {
        redact(as_text(key), values): _plain(
            value, values, hidden=hidden or _hides(as_text(key), value), depth=depth + 1
        )
        for key, value in found.items()
    }


def _hides(key: str, value: Any) -> bool:
    """Whether a field's name says that it is secret: `token=50256` is a piece of text, and `has_password=True` none."""
    if value is None or isinstance(value, bool) or not says_secret(key):
        return False
    return not (isinstance(value, int | float) and "token" in key.lower())


def _plain(value: Any, values: tuple[str, ...], *, hidden: bool, depth: int) -> Any:
    value = _number(value)
    if value is None or isinstance(value, int | float):  # first: a long list of numbers takes no time
        return SECRET if hidden and not isinstance(value, bool | None) else value
    if depth < _DEEPEST:
        value = _named(value)
        if isinstance(value, Mapping):
            return _mapping(value, values, hidden=hidden, depth=depth)
        if isinstance(value, list | tuple):
            return _sequence(value, values, hidden=hidden, depth=depth + 1)
        if isinstance(value, set | frozenset):
            return [_plain(item, values, hidden=hidden, depth=depth + 1) for item in value]
    if hidden:
        return SECRET
    return (redact if isinstance(value, str) else redact_text)(as_text(value), values)  # an object shows itself as code


def _named(value: Any) -> Any:
    """A dataclass and a named tuple as mappings; anything else as it is."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name, None) for field in fields(value)}
    return value._asdict() if isinstance(value, tuple) and hasattr(value, "_asdict") else value


def _number(value: Any) -> Any:
    """One of NumPy, PyTorch or JAX as Python has it; anything else as it is."""
    return value.item() if getattr(value, "ndim", None) == 0 and hasattr(value, "item") else value


def _sequence(items: Sequence[Any], values: tuple[str, ...], *, hidden: bool, depth: int) -> list[Any]:
    """`--password x` may be two items, of which each by itself says nothing, or one: `--password=x`."""
    flags = [item if isinstance(item, str) and item.startswith("-") else "" for item in items]
    after = ["", *flags]
    plain = [
        _plain(
            _flag(flag) or item, values, hidden=hidden or (not flag and _hides(before.lstrip("-"), item)), depth=depth
        )
        for item, flag, before in zip(items, flags, after, strict=False)
    ]
    return _in_pairs(plain) if any(isinstance(item, str) for item in plain) else plain


def _flag(word: str) -> str:
    """An option of a command line with its value masked, where its name says so."""
    name, equals, value = word.partition("=")
    return f"{name}={SECRET}" if equals and _hides(name.lstrip("-"), value) else word


def _in_pairs(plain: list[Any]) -> list[Any]:
    """The same, where `["token", "x"]` as text is known to be a name and its value."""
    text = json.dumps(plain)
    if (found := redact(text)) == text:
        return plain
    try:
        masked_list: list[Any] = json.loads(found)
    except ValueError:  # what was masked reached over the quotes
        return [SECRET if isinstance(item, str) else item for item in plain]
    return masked_list


def as_text(value: Any) -> str:
    """What `str` says of it, which another's code computes."""
    try:
        return str(value)
    except Exception as error:  # it must not end the program that logs it
        return f"<{type(value).__name__}, whose str() raises {type(error).__name__}>"
