"""Reads YAML 1.2 with the file and line of each key; refuses duplicates, and what no configuration needs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, cast

import yaml

from primus_machine.documents import bounds
from primus_machine.errors import ConfigError, Mistakes
from primus_machine.files.document import REFUSED, Path
from primus_machine.interpolation import interpolate

__all__ = ["Converter", "Environ", "composed", "parse_saved", "parse_value"]


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # the C parser where it is built
    """PyYAML with the core schema of YAML 1.2: `1e-5` is a float, `yes` and `12:30` are strings; and `None` is null."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012  # PyYAML's own API


for _tag, _pattern, _first in (
    ("bool", r"^(?:true|True|TRUE|false|False|FALSE)$", "tTfF"),
    ("int", r"^(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)$", "-+0123456789"),
    (
        "float",
        r"^(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$",
        "-+.0123456789",
    ),
    ("null", r"^(?:~|null|Null|NULL|None|)$", "~nN\0"),  # `None` as Python writes it, which frameworks print
    ("merge", r"^(?:<<)$", "<"),
):
    _Loader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_tag}", re.compile(_pattern), ["" if c == "\0" else c for c in _first]
    )

Environ = Mapping[str, str]


def _scalar(tag: str, text: str) -> Any:
    kind = tag.rpartition(":")[2]
    if kind == "int":
        return int(text, 0) if text[:2].lower() in ("0o", "0x") else int(text)
    if kind == "float":
        return float(re.sub(r"\.(?=inf|nan)", "", text.lower()))
    return {"bool": text.lower() == "true", "null": None}.get(kind, text)


_TAG = "tag:yaml.org,2002:"
_KINDS = frozenset({"bool", "int", "float", "null", "str", "map", "seq", "merge"})


def parse_value(text: str) -> Any:
    """A value as typed on a command line or put in for `${VAR}`: a YAML scalar or flow collection.

    `1e-5` is a float, `[1, 2]` a list, and anything that is no YAML stays the string that it is.
    """
    try:
        if bounds.deep_line(text):
            return text
        node = yaml.compose(text, Loader=_Loader)
        if node is not None and not _is_whole(node, text):
            return text
        data = None if node is None else Converter(path="", environ={}, raw=True).whole(node, {})
    except (yaml.YAMLError, ConfigError, RecursionError):
        return text
    return text if data is None and text.lstrip().startswith("#") else data


def parse_saved(text: str, path: str) -> Any:
    """What a file of a run says, by the same rules, with nothing filled in.

    Raises:
        ConfigError: it is no YAML, or more than a configuration may be.
    """
    marks: dict[Path, str] = {}
    node = composed(text, path)
    return None if node is None else Converter(path=path, environ={}, raw=True).whole(node, marks)


def _is_whole(node: yaml.Node, text: str) -> bool:
    """Whether `node` is all of `text`, on one line: `run #5` has no comment, and `a: b` is a title, no mapping."""
    if isinstance(node, yaml.CollectionNode):
        inline = node.flow_style
    elif not (style := cast("yaml.ScalarNode", node).style):
        return bool(node.value == text.strip())
    else:
        inline = style in ("'", '"')
    return bool(inline and node.end_mark.index == len(text.rstrip()))


class Converter:
    """One file's nodes to data and marks."""

    def __init__(self, *, path: str, environ: Environ, raw: bool = False) -> None:
        self.path, self.environ, self.raw = path, environ, raw
        self.mistakes = Mistakes()
        self.count = 0
        self.around: list[int] = []
        """The collections around the value in hand."""

    def whole(self, node: yaml.Node, marks: dict[Path, str]) -> Any:
        """All of it.

        Raises:
            ConfigError: something in it is wrong.
        """
        data = self.value(node, (), marks)
        self.mistakes.refuse()
        return data

    def place(self, node: yaml.Node) -> str:
        return f"{self.path}:{node.start_mark.line + 1}"

    def value(self, node: yaml.Node, path: Path, marks: dict[Path, str]) -> Any:
        if node.tag.removeprefix(_TAG) not in _KINDS:
            raise ConfigError(f"unknown tag '{node.tag}'", where=self.place(node), fix="write the value without it")
        self.counted(node)
        if not isinstance(node, yaml.CollectionNode):
            return self.scalar(cast("yaml.ScalarNode", node))
        if id(node) in self.around:
            raise ConfigError(
                "an alias refers to itself", where=self.place(node), fix="write the value instead of the alias"
            )
        if len(self.around) >= bounds.DEPTH:
            raise ConfigError("the file is nested too deeply", where=self.place(node), why=bounds.TOO_DEEP)
        self.around.append(id(node))
        try:
            if isinstance(node, yaml.MappingNode):
                return self.mapping(node, path, marks)
            return [self.value(item, (*path, i), marks) for i, item in enumerate(node.value)]
        finally:
            self.around.pop()

    def counted(self, node: yaml.Node) -> None:
        self.count += 1
        if self.count > bounds.MAX_VALUES:
            raise bounds.too_many(self.place(node))

    def scalar(self, node: yaml.ScalarNode) -> Any:
        if not self.raw and "${" in node.value:
            text = interpolate(node.value, self.environ, self.place(node))
            return text if node.style else parse_value(text)
        try:
            return _scalar(node.tag, node.value)
        except ValueError as error:
            raise ConfigError(
                f"'{node.value[:40]}' is not a valid {node.tag[len(_TAG) :]}", where=self.place(node)
            ) from error

    def mapping(self, node: yaml.MappingNode, path: Path, marks: dict[Path, str]) -> dict[str, Any]:
        data: dict[str, Any] = {}
        for key_node, value_node in self.pairs(node):
            if self.count > bounds.MAX_VALUES:
                break
            with self.mistakes:
                key = self.key(key_node, path, data, marks)
                data[key] = REFUSED  # stays, if the value cannot be read
                data[key] = self.value(value_node, (*path, key), marks)
        return data

    def key(self, node: yaml.Node, path: Path, data: Mapping[str, Any], marks: dict[Path, str]) -> str:
        key = node.value
        if not isinstance(key, str):
            raise ConfigError("a key must be plain text", where=self.place(node))
        if key in data and (*path, key) in marks:
            raise ConfigError(
                f"duplicate key '{key}'",
                where=self.place(node),
                why=f"it is already set at {marks[(*path, key)]}",
                fix="keep one of them",
            )
        marks[(*path, key)] = self.place(node)
        return key

    def pairs(self, node: yaml.MappingNode) -> Iterator[tuple[yaml.Node, yaml.Node]]:
        """The pairs of a mapping; those of `<<` first, less what the mapping or an earlier source says itself."""
        self.counted(node)
        own = [pair for pair in node.value if not pair[0].tag.endswith(":merge")]
        own_keys = {str(key.value) for key, _ in own}
        for key, value in node.value:
            if key.tag.endswith(":merge"):
                for source in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                    if not isinstance(source, yaml.MappingNode):
                        raise ConfigError("`<<` needs an alias of a mapping", where=self.place(key))
                    pairs = [pair for pair in self.pairs(source) if str(pair[0].value) not in own_keys]
                    own_keys |= {str(merged.value) for merged, _ in pairs}
                    yield from pairs
        yield from own


_BARE_VARIABLE = re.compile(r"[{[].*?[:,[] *\$\{")
_NEAR = 500
"""Characters of a line in which such a variable is searched: the search takes the square of their number."""
_OWN_LINE = "${...} is not allowed within { } or [ ]: write its key and value on a separate line"


def composed(text: str, path: str) -> yaml.Node | None:
    """The nodes of a YAML text; None: it has none.

    Raises:
        ConfigError: it is not valid YAML, or more than a configuration may be.
    """
    try:
        if line := bounds.deep_line(text):
            raise ConfigError("the file is nested too deeply", where=f"{path}:{line}", why=bounds.TOO_DEEP)
        if line := bounds.long_line(text):
            raise bounds.too_many(f"{path}:{line}")
        return yaml.compose(text, Loader=_Loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}" if mark else path
        lines = text.splitlines()[max(mark.line - 1, 0) : mark.line + 1] if mark else []
        near = "\n".join(line[:_NEAR] for line in lines)
        fix = _OWN_LINE if _BARE_VARIABLE.search(near) else "correct the YAML there; indent with spaces"
        why = getattr(error, "problem", None) or str(error)
        raise ConfigError("this is not valid YAML", where=where, why=why, fix=fix) from None
