"""A configuration file as plain data that still knows the file and line of every key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from primus_machine.errors import ConfigError

__all__ = ["ONE_KIND", "REFUSED", "Document", "Path", "at", "both_kinds", "clash", "deep_merge", "dotted"]


class _Refused:
    """The kind of `REFUSED`."""

    def __repr__(self) -> str:
        return "<refused>"


REFUSED = _Refused()
"""Stands for a value that could not be read and that an error is about already: nothing is judged by it."""

Path = tuple[str | int, ...]
"""The way to a value: `("modules", "pre_trainer", "overrides")`."""


def dotted(path: Path) -> str:
    """`path` as people write it: `modules.pre_trainer.overrides`."""
    return ".".join(str(part) for part in path)


def at(data: Any, path: Path) -> Any:
    """The value at `path`, or None where there is none."""
    for part in path:
        if not isinstance(data, Mapping) or part not in data:
            return None
        data = data[part]
    return data


def deep_merge(base: Mapping[str, Any], over: Mapping[str, Any], *, empty_adds: bool = False) -> dict[str, Any]:
    """`over` on `base`: mappings merge, anything else replaces. Neither is changed.

    With `empty_adds`, nothing (`null`) on a mapping is an empty section, which adds nothing.
    """
    merged = dict(base)
    for key, value in over.items():
        old = merged.get(key)
        both = isinstance(old, Mapping) and isinstance(value, Mapping)
        if not (empty_adds and value is None and isinstance(old, Mapping)):
            merged[key] = deep_merge(old, value, empty_adds=empty_adds) if both else value  # type: ignore[arg-type]
    return merged


_NEITHER = {id(None), id(REFUSED)}


def clash(base: Mapping[str, Any], over: Mapping[str, Any], before: Path = ()) -> Path:
    """Where one of the two has a value and the other one keys below it; empty: nowhere. Nothing (`null`) is neither."""
    for key, value in over.items():
        old, path = base.get(key), (*before, key)
        if isinstance(old, Mapping) and isinstance(value, Mapping):
            if found := clash(old, value, path):
                return found
        elif isinstance(old, Mapping) != isinstance(value, Mapping) and not {id(old), id(value)} & _NEITHER:
            return path
    return ()


def _twice(base: Mapping[str, Any], over: Mapping[str, Any], before: Path = ()) -> Path:
    """Where both have a single value; empty: nowhere."""
    for key in [key for key in over if key in base]:
        old, value, path = base[key], over[key], (*before, key)
        if isinstance(old, Mapping) and isinstance(value, Mapping):
            if found := _twice(old, value, path):
                return found
        elif not isinstance(old, Mapping) and not isinstance(value, Mapping):
            return path
    return ()


def both_kinds(path: Path) -> str:
    """What is wrong where `clash` found something."""
    return f"'{dotted(path)}' has a value, and settings below it"


ONE_KIND = "keep one of the two"


def _meets(parts: tuple[str, ...], path: Path) -> bool:
    """Whether one leads to the other."""
    length = min(len(parts), len(path))
    return parts[:length] == path[:length]


def _parts(key: str) -> tuple[str, ...]:
    parts = tuple(key.split("."))
    return parts if all(parts) else (key,)


class Document(NamedTuple):
    """Data and, for each path in it, the place that it came from (`file:line`, or `command line`)."""

    data: dict[str, Any]
    marks: Mapping[Path, str] = {}
    files: tuple[str, ...] = ()
    """All files that were read for it, also those whose every key another one overrides."""

    def where(self, path: Path) -> str:
        """The place of `path`, or of the nearest thing around it."""
        for length in range(len(path), -1, -1):
            if (mark := self.marks.get(path[:length])) is not None:
                return mark
        return ""

    def merged_onto(self, base: Document) -> Document:
        """This document merged on top of `base`. A section left empty in a file adds nothing to that of `base`."""
        data = deep_merge(base.data, self.data, empty_adds=bool(self.files))
        return Document(data, {**base.marks, **self.marks}, base.files + self.files)

    def section(self, path: Path) -> Document:
        """What stands below `path`, with its places."""
        data = at(self.data, path)
        size = len(path)
        marks = {key[size:]: mark for key, mark in self.marks.items() if key[:size] == path}
        return Document(dict(data) if isinstance(data, Mapping) else {}, marks, self.files)

    def nested(self) -> Document:
        """The same with its dotted keys (`training.steps: 5`) written out, so that they merge with other sources.

        Raises:
            ConfigError: a key is a value and holds other keys, too, or is given twice.
        """
        data: dict[str, Any] = {}
        for key, value in self.data.items():
            for part in reversed(_parts(key)[1:]):
                value = {part: value}  # noqa: PLW2901  # built from the inside
            added = {_parts(key)[0]: value}
            if path := clash(data, added):
                first = next(other for other in self.data if _meets(_parts(other), path))
                places = f"'{first}' is set at {self.where((first,))}"
                raise ConfigError(both_kinds(path), where=self.where((key,)), why=places, fix=ONE_KIND)
            if path := _twice(data, added):
                raise self._given_twice(path, key)
            data = deep_merge(data, added, empty_adds=True)
        marks = {(*_parts(str(k[0])), *k[1:]) if k else k: mark for k, mark in self.marks.items()}
        return Document(data, marks, self.files)

    def _given_twice(self, path: Path, key: str) -> ConfigError:
        """Return the error for a setting, of which `key` leads to the second place."""
        written = [(one, *path[len(_parts(one)) :]) for one in self.data if _meets(_parts(one), path)]
        first = next(one for one in written if one in self.marks or at(self.data, one) is not None)
        why = f"it is already set at {self.where(first)}"
        where = self.where((key, *path[len(_parts(key)) :]))
        return ConfigError(f"duplicate key '{dotted(path)}'", where=where, why=why, fix="keep one of them")

    def split_refused(self) -> tuple[Document, tuple[Path, ...]]:
        """The same without the values that have been refused, and the paths of these; `()`: that of a whole source."""
        gone: list[Path] = []
        return Document(_readable(self.data, (), gone), self.marks, self.files), tuple(gone)

    def below(self, path: Path) -> Document:
        """This document, moved below `path`."""
        data: dict[str, Any] = self.data
        for part in reversed(path):
            data = {str(part): data}
        return Document(data, {path + key: mark for key, mark in self.marks.items()}, self.files)


def _readable(data: Mapping[str, Any], before: Path, gone: list[Path]) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for key, value in data.items():
        if value is REFUSED:
            gone.append((*before, key) if key else ())
        else:
            kept[key] = _readable(value, (*before, key), gone) if isinstance(value, Mapping) else value
    return kept
