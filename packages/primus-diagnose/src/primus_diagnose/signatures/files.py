"""Reads a file of signatures and checks every word of it."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from typing import Any

from primus_core.errors import ConfigError, Mistakes, suggestion
from primus_diagnose.signatures.signature import Signature, mistakes
from primus_machine import strict

__all__ = ["read"]

_TABLE = "signature"
_MOST = 1 << 22
"""No file of signatures is so large."""
_PAGE = "correct the file: docs/signatures.md"


def read(
    path: str, opener: Callable[[str, int], int] | None = None, *, is_tested: bool = False
) -> tuple[Signature, ...]:
    """The signatures in a TOML file. `opener`: as `open` takes it. `is_tested`: tests have tried its patterns.

    Raises:
        ConfigError: it cannot be read, or something in it is wrong; all mistakes at once.
    """
    data = _data(path, opener)
    for key in data:
        if key != _TABLE:
            raise ConfigError(
                f"unknown key '{key}'", where=path, fix=suggestion(key, (_TABLE,)) or "write [[signature]]"
            )
    rows = data.get(_TABLE, [])
    if not isinstance(rows, list):
        raise ConfigError("signatures are a list", where=path, fix="write [[signature]], in double brackets")
    found, wrong = [], Mistakes()
    for number, row in enumerate(rows, 1):
        with wrong:
            found.append(_signature(row, f"{path}, [[signature]] {number}", is_tested=is_tested))
    wrong.refuse()
    return tuple(found)


def _data(path: str, opener: Callable[[str, int], int] | None) -> Mapping[str, Any]:
    try:
        with open(path, "rb", opener=opener) as file:
            return tomllib.loads(file.read(_MOST).decode())
    except (OSError, ValueError, RecursionError) as error:
        why = str(error.strerror) if isinstance(error, OSError) else str(error) or "it is damaged"
        fix = "check the path" if isinstance(error, OSError) else _PAGE
        raise ConfigError("these signatures cannot be read", where=path, why=why, fix=fix) from None


def _signature(row: Any, where: str, *, is_tested: bool) -> Signature:
    named = f"{where} ({row['id']})" if isinstance(row, dict) and isinstance(row.get("id"), str) else where
    try:
        signature = strict.read(Signature, row)
    except strict.ValidationError as error:
        raise _explain(error, named) from None
    if wrong := () if is_tested else mistakes(signature):
        raise ConfigError(wrong[0], where=named, why="; ".join(wrong[1:]), fix=_PAGE)
    return signature


def _explain(error: strict.ValidationError, where: str) -> ConfigError:
    # A misspelt key before the key that it leaves missing: its message has the suggestion.
    first = min(error.errors(), key=lambda one: one["type"] != "extra_forbidden")
    name, known = ".".join(map(str, first["loc"])), strict.keys(Signature)
    if first["type"] == "extra_forbidden":
        fix = suggestion(name, known) or "remove it"
        return ConfigError(f"unknown key '{name}'", where=where, why=f"known: {', '.join(known)}", fix=fix)
    if first["type"] == "missing":
        return ConfigError(f"'{name}' is missing", where=where, fix=_PAGE)
    what = f"'{name}' is {first['input']!r}" if name else f"it is {first['input']!r}"
    return ConfigError(what, where=where, why=first["msg"], fix=_PAGE)
