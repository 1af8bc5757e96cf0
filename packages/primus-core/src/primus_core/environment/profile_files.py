"""Reads a file of a GPU profile and checks every word of it: a misspelt condition must not be one that never holds."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from primus_core.environment import flag_lists
from primus_core.environment.flag_lists import FLAG_LISTS
from primus_core.environment.resolve import NAME, OWNED
from primus_machine.errors import ConfigError, suggestion

__all__ = ["VERSIONS", "Profile", "Row", "listed", "read"]

VERSIONS = ("cuda", "rocm")
"""Conditions that ask for a range of versions."""

_CONDITIONS = ("architecture", "cuda", "deterministic", "framework", "nic", "rocm", "without")
_PCI_ID = r"[0-9a-f]{4}:[0-9a-f]{4}"
_ROW_KEYS = {"name": str, "value": str, "why": str, "source": str, "when": dict, "unset": bool}
_FILE_KEYS = {"name": str, "extends": str, "pci_ids": list, "variable": list}


class Row(NamedTuple):
    """One `[[variable]]` of a profile."""

    name: str
    value: str = ""
    why: str = ""
    source: str = ""
    when: Mapping[str, Any] = {}
    unset: bool = False
    """Take away what a profile further down has set."""


class Profile(NamedTuple):
    """One file of profiles."""

    name: str
    path: str
    origin: str
    """`profile MI300X`, `profile ACME (acme-primus 2.1.0)`, `profile ./mine.toml`."""
    extends: str = ""
    pci_ids: tuple[str, ...] = ()
    """`1002:75a8`: devices that are of this model, for a model that Primus itself does not know."""
    rows: tuple[Row, ...] = ()


def read(path: str, origin: str = "", opener: Callable[[str, int], int] | None = None) -> Profile:
    """The profile in a file. `opener`: as `open` takes it.

    Raises:
        ConfigError: it cannot be read, or something in it is wrong.
    """
    import tomllib

    try:
        with open(path, "rb", opener=opener) as file:
            data = tomllib.load(file)
    except (OSError, ValueError, RecursionError) as error:
        fix = "check the path" if isinstance(error, OSError) else "correct the file: docs/gpu-profiles.md"
        raise ConfigError("this profile cannot be read", where=path, why=_reason(error), fix=fix) from None
    _check(data, _FILE_KEYS, path, "a profile")
    name = data.get("name") or os.path.splitext(os.path.basename(path))[0]
    return Profile(
        name=name,
        path=path,
        origin=origin or f"profile {name}",
        extends=data.get("extends", ""),
        pci_ids=tuple(_pci(item, path) for item in data.get("pci_ids", ())),
        rows=_rows(data.get("variable", ()), path),
    )


def _reason(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "it is damaged: its lists or tables are nested too deeply"
    return str(error.strerror) if isinstance(error, OSError) else str(error)


def _rows(data: Sequence[Any], path: str) -> tuple[Row, ...]:
    rows = tuple(_row(item, f"{path}, [[variable]] {number}") for number, item in enumerate(data, 1))
    for number, row in enumerate(rows):
        if twice := next((repeated for other in rows[:number] if (repeated := _repeated(row, other))), ""):
            raise ConfigError(f"{twice} is set twice", where=path, fix="remove one, or give them different `when`")
    return rows


def _repeated(row: Row, other: Row) -> str:
    """What both say, where they hold in the same place: the variable, or a flag of its list."""
    if row.name != other.name or row.when != other.when:
        return ""
    if row.name not in FLAG_LISTS or row.unset or other.unset:
        return row.name
    mine, theirs = ({*map(flag_lists.name_of, flag_lists.words(one.value) or ())} for one in (row, other))
    return min(mine & theirs, default="")


def _row(data: Any, where: str) -> Row:
    if not isinstance(data, dict):
        raise ConfigError(f"{data!r} is not a row", where=where, fix="write [[variable]], name = and value = below it")
    _check(data, _ROW_KEYS, where, "a variable")
    row = Row(**data)
    if not NAME.fullmatch(row.name) or row.name in OWNED:
        why = (
            "Primus sets it itself"
            if row.name in OWNED
            else "names have letters, digits and '_', and do not begin with a digit"
        )
        raise ConfigError(f"{row.name!r} cannot be set by a profile", where=where, why=why)
    if row.unset == ("value" in data) or "\0" in row.value:
        raise ConfigError(f"{row.name} needs a value, or unset = true, and not both", where=where)
    if row.name in FLAG_LISTS and flag_lists.words(row.value) is None:
        raise ConfigError(f"{row.name} = {row.value!r} is not a list of flags", where=where, fix='write "--name=value"')
    for key, wanted in row.when.items():
        _check_condition(key, wanted, f"{where} ({row.name})")
    return row


def _check(data: Mapping[str, Any], kinds: Mapping[str, type], where: str, what: str) -> None:
    for key, value in data.items():
        if key not in kinds:
            fix = suggestion(key, kinds)
            raise ConfigError(f"unknown key {key!r} of {what}", where=where, why=f"keys: {', '.join(kinds)}", fix=fix)
        if not isinstance(value, kinds[key]):
            fix = f'write "{value}"' if kinds[key] is str and not isinstance(value, dict | list) else ""
            raise ConfigError(f"{key} = {value!r} is not a valid {_word(kinds[key])}", where=where, fix=fix)
    if kinds is _ROW_KEYS and "name" not in data:
        raise ConfigError(f"{what} has no name", where=where, fix='add name = "..."')


def _word(kind: type) -> str:
    return {str: "text", dict: "table of conditions", bool: "true or false", list: "list"}[kind]


def _check_condition(key: str, wanted: Any, where: str) -> None:
    if key not in _CONDITIONS:
        fix = suggestion(key, _CONDITIONS)
        raise ConfigError(f"unknown condition {key!r}", where=where, why=f"known: {', '.join(_CONDITIONS)}", fix=fix)
    kind = bool if key == "deterministic" else str
    values = listed(wanted)
    if not values or not all(isinstance(value, kind) for value in values):
        expected = "true or false" if kind is bool else "text, or a list of texts"
        raise ConfigError(f"when {key} = {wanted!r}: it must be {expected}", where=where)
    for value in values if key in VERSIONS else ():
        if not _is_range(value):
            raise ConfigError(f"when {key} = {value!r}: this is not a version", where=where, fix='write ">=6.2,<7"')


def _is_range(text: str) -> bool:
    """Whether `text` is a range of versions, by the word of what will compare them."""
    from packaging.specifiers import SpecifierSet  # slow, and few files ask for a version

    try:
        SpecifierSet(text).contains("1")  # some of it is read only here
        return bool(list(SpecifierSet(text)))  # nothing would be a range of all versions
    except ValueError:
        return False


def _pci(value: Any, path: str) -> str:
    text = value.lower() if isinstance(value, str) else repr(value)
    if not re.fullmatch(_PCI_ID, text):
        raise ConfigError(f"{value!r} in pci_ids: not a PCI id", where=path, fix='write vendor and device: "1002:74a1"')
    return text


def listed(value: Any) -> Sequence[Any]:
    """What a condition takes: any of a list, or the one value that stands alone."""
    return value if isinstance(value, list) else [value]
