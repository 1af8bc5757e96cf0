"""What a snapshot looks like: its manifest, how it spells an environment, how it names a person's scripts."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence

from primus_core.plan.plan import HookPlugin, Step

__all__ = ["MANIFEST", "SCHEMA", "dump", "parse_env_dump", "plugin_copies", "script_copies"]

SCHEMA = 1
"""Version of the snapshot's form."""
MANIFEST = "snapshot.json"
"""Written last: where it is, the snapshot is whole."""

_ESCAPES = {"\\": "\\\\", "\n": "\\n", "\r": "\\r"}
_ESCAPED = re.compile(r"[\\\n\r\udc80-\udcff]")
_UNESCAPED = re.compile(r"\\(?:x([0-9a-f]{2})|(.?))", re.S)
_MEANT = {"\\": "\\", "n": "\n", "r": "\r"}


def dump(environ: Mapping[str, str]) -> str:
    r"""Environment as text: `NAME=VALUE` a line, sorted. `\`, newline, return and bytes that are no UTF-8 are escaped.

    Values are written as they are: whoever writes them to a file has replaced the secrets.
    """
    return "".join(f"{_escape(name)}={_escape(environ[name])}\n" for name in sorted(environ))


def _escape(text: str) -> str:
    return _ESCAPED.sub(lambda match: _ESCAPES.get(match[0]) or f"\\x{ord(match[0]) - 0xDC00:02x}", text)


def parse_env_dump(text: str) -> dict[str, str]:
    """The environment that `dump` wrote.

    Raises:
        ValueError: it did not write this.
    """
    found = {}
    for number, line in enumerate(text.split("\n"), 1):  # not splitlines, which knows ten more ends of lines
        name, equals, value = line.partition("=")
        if not equals and line:
            raise ValueError(f"line {number} is not NAME=VALUE")
        if line:
            found[_unescape(name)] = _unescape(value)
    return found


def _unescape(text: str) -> str:
    return _UNESCAPED.sub(_meant, text)


def _meant(match: re.Match[str]) -> str:
    if match[1]:
        return chr(0xDC00 + int(match[1], 16))
    if match[2] not in _MEANT:
        raise ValueError(f"'\\{match[2]}' is not a valid escape")
    return _MEANT[match[2]]


def script_copies(steps: Sequence[Step]) -> dict[str, Step]:
    """Where a run directory keeps the text of its scripts: `config/hooks/01-prepare.sh`, numbered in their order.

    One that bears its number already keeps its name: a replay's scripts come from such a folder.
    """
    found: dict[str, Step] = {}
    for index, script in enumerate(step for step in steps if step.script):
        folder = {"hook": "hooks", "patch": "patches"}[script.kind]
        number, name = f"{index + 1:02d}-", os.path.basename(script.script)
        found[f"config/{folder}/{number}{name.removeprefix(number)}"] = script
    return found


def plugin_copies(plugins: Sequence[HookPlugin]) -> dict[str, HookPlugin]:
    """Where a run directory keeps a person's files of Python hooks; packages are known by their versions."""
    found = {}
    for index, plugin in enumerate(plugins):
        if plugin.is_file:
            number, name = f"plugin-{index + 1:02d}-", plugin.target.rpartition("/")[2]
            found[f"config/hooks/{number}{name.removeprefix(number)}"] = plugin
    return found
