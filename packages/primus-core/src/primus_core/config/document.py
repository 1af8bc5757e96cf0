"""A configuration file as plain data that still knows the file and line of every key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Document", "Path", "at", "deep_merge", "dotted"]

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


def deep_merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`over` on `base`: mappings merge, anything else replaces. Neither is changed."""
    merged = dict(base)
    for key, value in over.items():
        old = merged.get(key)
        both = isinstance(old, Mapping) and isinstance(value, Mapping)
        merged[key] = deep_merge(old, value) if both else value  # type: ignore[arg-type]
    return merged


def _parts(key: str) -> tuple[str, ...]:
    parts = tuple(key.split("."))
    return parts if all(parts) else (key,)


@dataclass(frozen=True, slots=True)
class Document:
    """Data and, for each path in it, the place that it came from (`file:line`, or `command line`)."""

    data: dict[str, Any] = field(default_factory=dict)
    marks: Mapping[Path, str] = field(default_factory=dict)
    files: tuple[str, ...] = ()
    """All files that were read for it, also those whose every key another one overrides."""

    def where(self, path: Path) -> str:
        """The place of `path`, or of the nearest thing around it."""
        for length in range(len(path), -1, -1):
            if (mark := self.marks.get(path[:length])) is not None:
                return mark
        return ""

    def over(self, base: Document) -> Document:
        """This document merged on top of `base`."""
        return Document(deep_merge(base.data, self.data), {**base.marks, **self.marks}, base.files + self.files)

    def section(self, path: Path) -> Document:
        """What stands below `path`, with its places."""
        data = at(self.data, path)
        size = len(path)
        marks = {key[size:]: mark for key, mark in self.marks.items() if key[:size] == path}
        return Document(dict(data) if isinstance(data, Mapping) else {}, marks, self.files)

    def nested(self) -> Document:
        """The same with its dotted keys (`training.steps: 5`) written out, so that they merge with other sources."""
        data: dict[str, Any] = {}
        for key, value in self.data.items():
            for part in reversed(_parts(key)[1:]):
                value = {part: value}  # noqa: PLW2901  # built from the inside
            data = deep_merge(data, {_parts(key)[0]: value})
        marks = {(*_parts(str(k[0])), *k[1:]) if k else k: mark for k, mark in self.marks.items()}
        return Document(data, marks, self.files)

    def below(self, path: Path) -> Document:
        """This document, moved below `path`."""
        data: dict[str, Any] = self.data
        for part in reversed(path):
            data = {str(part): data}
        return Document(data, {path + key: mark for key, mark in self.marks.items()}, self.files)
