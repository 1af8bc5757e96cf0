"""The text of an experiment with settings renamed and removed, or with other values: comments and order are kept."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import yaml

from primus_core.config.document import Document, Path, at
from primus_core.errors import ConfigError
from primus_machine.documents.yaml_text import parse_saved
from primus_train.commands.resolved import as_yaml
from primus_train.commands.templates import in_one_line
from primus_train.migration import Fate

__all__ = ["Change", "edited", "with_values"]

KeyPath = tuple[str, ...]


class Change(NamedTuple):
    """What becomes of one setting of an experiment."""

    module: KeyPath
    """Where the settings of its module are."""
    keys: KeyPath
    """Its keys below that, as they are written."""
    name: str
    value: Any
    fate: Fate
    is_double: bool = False
    """The new name is set, too, to the same value."""

    @property
    def new_key(self) -> str:
        """The last key of the new name, if it belongs into the same section."""
        section = "".join(f"{key}." for key in self.keys[:-1])
        rest = self.fate.to.removeprefix(section)
        return rest if self.fate.to.startswith(section) else ""

    @property
    def is_in_place(self) -> bool:
        """Whether only the last key changes."""
        return bool(self.new_key) and not self.is_double

    @property
    def is_moved(self) -> bool:
        """Whether it goes to another section."""
        return bool(self.fate.to) and not self.is_in_place and not self.is_double


class _Entry(NamedTuple):
    """A key in the text: its lines, the last one included, and its column."""

    first: int
    last: int
    column: int
    width: int
    inside: dict[str, _Entry]


def edited(text: str, data: Mapping[str, Any], changes: list[Change]) -> tuple[str, bool]:
    """Return the text for the changed `data`, and whether it is the old one edited.

    It is written anew where editing lines does not give that data: flow collections, anchors, merges.
    """
    if not changes:
        return text, True
    try:
        found = _edited(text, data, changes)
        if _nested(parse_saved(found, ""), changes) == _nested(data, changes):
            return found, True
    except (yaml.YAMLError, ConfigError, KeyError):
        pass  # it is written anew
    return as_yaml(data), False


def with_values(text: str, data: Mapping[str, Any], values: Mapping[Path, Any]) -> tuple[str, bool]:
    """Return the text with other values, which `data` has already, and whether it is the old one edited."""
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        spans = [span for path, value in values.items() for span in _spans(_node(root, path), value)]
        found = text
        for start, end, value in sorted(spans, key=lambda span: span[0], reverse=True):
            last = start + len(text[start:end].rstrip())  # a block's end is where the next thing begins
            found = found[:start] + in_one_line(value) + found[last:]
        if parse_saved(found, "") == data:
            return found, True
    except (yaml.YAMLError, ConfigError, KeyError):
        pass  # it is written anew
    return as_yaml(data), False


def _node(node: yaml.Node | None, path: Path) -> yaml.Node:
    for key in path:
        node = {one.value: value for one, value in node.value}[key] if isinstance(node, yaml.MappingNode) else None
    if node is None:
        raise KeyError(path)
    return node


def _spans(node: yaml.Node, value: Any) -> Iterator[tuple[int, int, Any]]:
    """Yield where the text of a value begins and ends; of a list, that of each item that is text."""
    if isinstance(node, yaml.SequenceNode) and isinstance(value, list):
        for item, one in zip(node.value, value, strict=True):
            if isinstance(one, str) and item.value != one:
                yield from _spans(item, one)
    else:
        yield node.start_mark.index, node.end_mark.index, value


def _edited(text: str, data: Mapping[str, Any], changes: list[Change]) -> str:
    lines = text.split("\n")
    tree = _entries(yaml.compose(text, Loader=yaml.SafeLoader))
    before: dict[int, list[str]] = {}
    gone: set[int] = set()
    dead: dict[int, int] = {}
    for change in changes:
        path = (*change.module, *change.keys)
        entry = _at(tree, path)
        if change.is_in_place:
            line = lines[entry.first]
            lines[entry.first] = line[: entry.column] + change.new_key + line[entry.column + entry.width :]
            continue
        if change.is_moved:
            section = _at(tree, path[: len(change.module) + 1])
            before.setdefault(section.first, []).extend(_moved(lines, entry, section.column, change.fate.to))
            gone.update(range(entry.first, entry.last + 1))
            continue
        dead.update(dict.fromkeys(range(entry.first, entry.last + 1), entry.column))
    for change in changes:
        for length in range(len(change.module), len(change.module) + len(change.keys)):
            path = (*change.module, *change.keys)[:length]
            if not change.is_in_place and at(data, path) is None:
                entry = _at(tree, path)
                dead[entry.first] = entry.column
    return "\n".join(_written(lines, before, gone, dead))


def _written(lines: list[str], before: dict[int, list[str]], gone: set[int], dead: dict[int, int]) -> list[str]:
    written: list[str] = []
    for number, line in enumerate(lines):
        written += before.get(number, [])
        if number in dead and line.strip() and not line.lstrip().startswith("#"):
            written.append(f"{line[: dead[number]]}# {line[dead[number] :]}")
        elif number not in gone:
            written.append(line)
    return written


def _moved(lines: list[str], entry: _Entry, column: int, name: str) -> list[str]:
    """Return the lines of a setting, as far to the left as its new place needs."""
    indent, rest = " " * column, lines[entry.first][entry.column + entry.width :]
    return [
        f"{indent}{name}{rest}",
        *(indent + line[entry.column :] for line in lines[entry.first + 1 : entry.last + 1]),
    ]


def _entries(node: yaml.Node | None) -> dict[str, _Entry]:
    found = {}
    if isinstance(node, yaml.MappingNode) and not node.flow_style:
        for key, value in node.value:
            start, end = key.start_mark, key.end_mark
            found[str(key.value)] = _Entry(
                start.line, max(start.line, _last_line(value)), start.column, end.column - start.column, _entries(value)
            )
    return found


def _last_line(node: yaml.Node) -> int:
    """Return the last line of a value: the end of a block collection is where the next thing begins."""
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        return _last_line(last[1] if isinstance(last, tuple) else last)
    return int(node.end_mark.line) - (node.end_mark.column == 0 and node.end_mark.line > node.start_mark.line)


def _at(tree: dict[str, _Entry], path: KeyPath) -> _Entry:
    for key in path[:-1]:
        tree = tree[key].inside
    return tree[path[-1]]


def _nested(data: Any, changes: list[Change]) -> Any:
    """Return the data with dotted settings written out: that is how they are read."""
    modules = dict(data["modules"])
    for module in {change.module for change in changes}:
        settings = at(data, module)
        if isinstance(settings, Mapping):
            modules[module[1]] = {**modules[module[1]], "overrides": Document(dict(settings)).nested().data}
    return {**data, "modules": modules}
