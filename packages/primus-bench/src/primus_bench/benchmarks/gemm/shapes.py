"""A file of shapes: CSV with a line of names, or JSON lines. Each line is one multiplication."""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from primus_bench.benchmarks.gemm.problem import DTYPES, LAYOUTS, MOST, Problem
from primus_core.errors import ConfigError, Mistakes, RequestError, suggestion
from primus_machine.files.atomic import read_regular

__all__ = ["KEYS", "read"]

KEYS = ("m", "n", "k", "count", "dtype", "trans", "groups", "name")
_NEEDED = KEYS[:3]
_LARGEST_FILE = 2**20
_MOST_SHAPES = 500
_NAME = re.compile(r"[\w.:/+ -]{1,80}", re.ASCII)
_FIX = 'write lines such as m,n,k,count,dtype,trans with a line of names, or {"m": 8, "n": 8, "k": 8}'

Row = tuple[str, Mapping[str, Any]]
"""Where a line stands, `file:line`, and what it says."""


def read(path: str, dtype: str) -> tuple[Problem, ...]:
    """The shapes in the file, equal ones together; `dtype`: of lines without one.

    Raises:
        RequestError: it cannot be read, or something in it is wrong; all of it.
    """
    text, mistakes = _text(path), Mistakes()
    found: dict[Problem, Problem] = {}
    for where, row in _rows(path, text, mistakes):
        one = _problem(where, row, dtype, mistakes)
        if one:
            kind = one._replace(repeats=1)
            found[kind] = one._replace(repeats=one.repeats + found[kind].repeats) if kind in found else one
    mistakes.refuse()
    _check(path, tuple(found.values()))
    return tuple(found.values())


def _text(path: str) -> str:
    try:
        data = read_regular(os.path.realpath(path), _LARGEST_FILE + 1)
        if len(data) > _LARGEST_FILE:
            raise OSError(0, "it is larger than 1 MiB")
        return data.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text in UTF-8"
        raise RequestError(
            f"--shapes: {path} cannot be read", why=why or "", fix="name a text file of shapes"
        ) from None


def _rows(path: str, text: str, mistakes: Mistakes) -> Iterator[Row]:
    lines = [(f"{path}:{number}", line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    if lines and lines[0][1].lstrip().startswith("{"):
        for where, line in lines:
            with mistakes:
                yield where, _json(where, line)
    elif lines:
        names = [name.lower() for name in _cells(*lines[0])]
        for name in (*names, *[name for name in _NEEDED if name not in names]):
            with mistakes:
                _require_key(name, names, lines[0][0])
        for where, line in lines[1:] if not mistakes else ():
            with mistakes:
                yield where, _csv(where, names, line)


def _json(where: str, line: str) -> Mapping[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        row = None
    if not isinstance(row, dict):
        raise ConfigError("the line is not a JSON object", where=where, fix=_FIX)
    return row


def _csv(where: str, names: list[str], line: str) -> Mapping[str, Any]:
    values = _cells(where, line)
    if len(values) != len(names):
        raise ConfigError(f"the line has {len(values)} values for {len(names)} names", where=where, fix=_FIX)
    return {name: value for name, value in zip(names, values, strict=True) if value}


def _cells(where: str, line: str) -> list[str]:
    try:
        return [cell.strip() for cell in next(csv.reader([line]))]
    except csv.Error as error:
        raise ConfigError("the line is not CSV", where=where, why=str(error), fix=_FIX) from None


def _require_key(name: str, names: list[str], where: str) -> None:
    if name not in KEYS:
        fix = suggestion(name, KEYS) or "remove it"
        raise ConfigError(f"unknown name '{name}'", where=where, why=f"known: {', '.join(KEYS)}", fix=fix)
    if name not in names:
        raise ConfigError(f"there is no '{name}'", where=where, fix=_FIX)


def _problem(where: str, row: Mapping[str, Any], dtype: str, mistakes: Mistakes) -> Problem | None:
    before = len(mistakes.found)
    for name in (*row, *[name for name in _NEEDED if name not in row]):
        with mistakes:
            _require_key(name, list(row), where)
    given: dict[str, Any] = {"dtype": dtype}
    for name, value in row.items():
        if kind := _KINDS.get(name):
            with mistakes:
                given |= kind(name, value, where)
    return Problem(**given) if len(mistakes.found) == before else None


def _whole(name: str, value: Any, where: str) -> dict[str, int]:
    text = str(value)
    if isinstance(value, bool | float) or not re.fullmatch("[0-9]{1,10}", text) or not 0 < int(text) <= MOST:
        raise ConfigError(f"{name} is {value!r}", where=where, why=f"it is a whole number from 1 to {MOST}")
    return {"repeats" if name == "count" else name: int(text)}


def _dtype(name: str, value: Any, where: str) -> dict[str, str]:
    return {name: _one_of(name, str(value).lower(), DTYPES, where)}


def _layout(name: str, value: Any, where: str) -> dict[str, bool]:
    layout = _one_of(name, str(value).upper(), LAYOUTS, where)
    return {"trans_a": layout[0] == "T", "trans_b": layout[1] == "T"}


def _one_of(name: str, value: str, known: tuple[str, ...], where: str) -> str:
    if value not in known:
        fix = suggestion(value, known)
        raise ConfigError(f"{name} is {value!r}", where=where, why=f"known: {', '.join(known)}", fix=fix)
    return value


def _name(name: str, value: Any, where: str) -> dict[str, str]:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        why = "it is 1 to 80 letters, digits, spaces and . : / + -"
        raise ConfigError(f"{name} is {value!r}", where=where, why=why)
    return {name: value}


_KINDS: Mapping[str, Callable[[str, Any, str], dict[str, Any]]] = {
    **dict.fromkeys(("m", "n", "k", "count", "groups"), _whole), "dtype": _dtype, "trans": _layout, "name": _name,
}  # fmt: skip


def _check(path: str, found: tuple[Problem, ...]) -> None:
    labels = [one.label for one in found]
    twice = sorted({label for label in labels if labels.count(label) > 1})
    if not found or len(found) > _MOST_SHAPES:
        raise RequestError(f"{path} has {len(found)} shapes", why=f"1 to {_MOST_SHAPES} can be measured", fix=_FIX)
    if twice:
        raise RequestError(f"{path}: several shapes are called '{twice[0]}'", fix="give each a name of its own")
    for one in found:
        if one.groups > one.m:
            raise RequestError(f"{path}: {one.groups} groups of {one.m} rows", fix="choose at most M groups")
