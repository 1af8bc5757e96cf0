"""How large a configuration file may be, how deep, and how many values its aliases may stand for."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable
from typing import Any

import yaml

from primus_machine.errors import ConfigError

__all__ = [
    "DEPTH",
    "MAX_VALUES",
    "TOO_DEEP",
    "Opener",
    "check_depth",
    "deep_key_line",
    "deep_line",
    "long_line",
    "text_of",
    "too_many",
]

_SIZE = 1 << 20
DEPTH = 100
"""Values may stand so many levels below the top."""
MAX_VALUES = 20_000
"""A file may hold so many, those behind aliases counted each time."""
TOO_DEEP = f"more than {DEPTH} nested levels of lists and mappings"
_PARSERS_LIMIT = "maximum nesting depth"
"""The parser reads ahead, and since libyaml 0.2.6 refuses what is far too deep itself."""
_LONG = 1 << 16
_MAY_BE_DEEP = re.compile(rf"^[ \t?-]{{{DEPTH}}}", re.M)
_DEEP_KEY = re.compile(rf"(?<![\w\"'-])(?:[\w\"'-]++[ \t]*+\.[ \t]*+){{{DEPTH}}}")


Opener = Callable[[str, int], int]


def text_of(path: str, opener: Opener | None = None) -> str:
    """What the file says. `opener`: as `open` takes it.

    Raises:
        ConfigError: it is larger than a configuration, or no regular file.
        OSError, UnicodeDecodeError: it cannot be read.
    """
    with open(path, encoding="utf-8", opener=opener or _at_once) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            why = "a configuration is read several times, which does not work with a pipe"
            raise ConfigError("it is not a regular file", where=path, why=why, fix="write it to a regular file")
        text = file.read(_SIZE + 1)
    if len(text) > _SIZE:
        why = f"{os.path.getsize(path)} bytes: more than {_SIZE >> 20} MiB"
        raise ConfigError("the file is too large", where=f"{path}:1", why=why)
    return text


def _at_once(path: str, flags: int) -> int:
    """Open a file; a FIFO is not waited for."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)


def deep_line(text: str) -> int:
    """The line on which YAML is nested too deeply; 0: nowhere. The parser itself would go as deep as the text does."""
    if text.count("[") + text.count("{") < DEPTH and not _MAY_BE_DEEP.search(text):
        return 0
    depth = 0
    try:
        for event in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > DEPTH:
                return event.start_mark.line + 1 if event.start_mark else 1
    except yaml.MarkedYAMLError as error:
        if error.problem_mark and _PARSERS_LIMIT in (error.problem or ""):
            return error.problem_mark.line + 1
        raise
    return 0


def long_line(text: str) -> int:
    """The line by which YAML certainly holds too many values; 0: it may not. To compose all of it takes long."""
    if len(text) < _LONG:
        return 0
    nodes = 0
    for event in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
        nodes += isinstance(event, yaml.NodeEvent)
        if nodes > 2 * MAX_VALUES:  # keys, too
            return event.start_mark.line + 1 if event.start_mark else 1
    return 0


def deep_key_line(text: str) -> int:
    """The line of a TOML key with too many parts (`a.b.c`), for which the parser would need gigabytes; 0: nowhere."""
    found = _DEEP_KEY.search(text)
    return text.count("\n", 0, found.start()) + 1 if found else 0


def check_depth(data: Any, where: str) -> None:
    """Refuse data that is nested too deeply, or too much.

    Raises:
        ConfigError: it is.
    """
    level, count = [data], 0
    for _ in range(DEPTH + 1):
        level = [
            below
            for value in level
            if isinstance(value, dict | list)
            for below in (value.values() if isinstance(value, dict) else value)
        ]
        count += len(level)
        if count > MAX_VALUES:
            raise ConfigError("the file holds too many values", where=where, why=f"more than {MAX_VALUES}")
        if not level:
            return
    raise ConfigError("the file is nested too deeply", where=where, why=TOO_DEEP)


def too_many(where: str) -> ConfigError:
    """The error for a file that stands for more than anybody means."""
    return ConfigError(
        "the file holds too many values",
        where=where,
        why=f"with its aliases (`*name`) expanded, it has more than {MAX_VALUES}",
        fix="write the values instead of the aliases",
    )
