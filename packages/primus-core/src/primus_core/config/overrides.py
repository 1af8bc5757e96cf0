"""`key=value`, `--key value` and `--key=value` on a command line, as a document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from primus_core.config.document import Document, Path
from primus_core.config.files import parse_value
from primus_core.config.interpolation import interpolate
from primus_core.errors import RequestError

__all__ = ["parse"]


def parse(words: Sequence[str], environ: Mapping[str, str]) -> Document:
    """The settings that `words` give, dotted keys nested; a later one wins. Values are YAML: `1e-5` is a float.

    `${VAR}` is filled in as in a file, for what a shell's quotes left standing (`api_key='${MY_KEY}'`).

    Raises:
        RequestError: a word is no setting, or a value or variable is missing.
    """
    data: dict[str, Any] = {}
    marks: dict[Path, str] = {}
    rest = list(words)
    while rest:
        shown, key, text = _next(rest)
        path = tuple(key.split("."))
        if not all(path):
            raise RequestError(f"'{shown}' is no setting", why="a part between its dots is empty")
        where = f"command line: {shown}"
        _put(data, path, parse_value(interpolate(text, environ, where)))
        marks |= {path[:length]: where for length in range(1, len(path) + 1)}
    return Document(data, marks)


def _next(rest: list[str]) -> tuple[str, str, str]:
    word = rest.pop(0)
    name, equals, value = word.lstrip("-").partition("=")
    dashed = word.startswith("--")
    if not name or (word.startswith("-") and not dashed) or (not dashed and not equals):
        raise RequestError(f"'{word}' is no setting", fix="write key=value, --key value or --key=value")
    if equals:
        return word, name, value
    if not rest or (rest[0].startswith("--") and not rest[0][2:3].isdigit()):
        raise RequestError(f"'{word}' has no value", fix=f"write {word} VALUE, or {name}=true for a switch")
    value = rest.pop(0)
    return f"{word} {value}", name, value


def _put(data: dict[str, Any], path: Path, value: Any) -> None:
    for part in path[:-1]:
        below = data.setdefault(str(part), {})
        if not isinstance(below, dict):
            below = data[str(part)] = {}
        data = below
    data[str(path[-1])] = value
