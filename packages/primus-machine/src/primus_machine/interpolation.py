"""`${VAR}` and `${VAR:default}` in configuration text, defaults nested; `$${` stays a literal `${`."""

from __future__ import annotations

import re
from collections.abc import Mapping

from primus_machine.errors import ConfigError
from primus_machine.secrets.redaction import is_secret_name

__all__ = ["interpolate"]


_BRACE = re.compile(r"\$\{|\}")
_DEPTH = 20
"""So many defaults may stand in each other."""
_LONGEST = 1 << 20
"""No longer a text becomes: as long as a whole file may be."""


def _closing(text: str, start: int, where: str) -> int:
    """Index of the `}` that closes the `${` before `start`, or -1."""
    depth = 1
    for brace in _BRACE.finditer(text, start):
        depth += 1 if brace[0] == "${" else -1
        if not depth:
            return brace.start()
        if depth > _DEPTH:
            raise ConfigError(f"more than {_DEPTH} nested `${{...}}`", where=where, fix="give one default")
    return -1


def interpolate(text: str, environ: Mapping[str, str], where: str = "") -> str:
    """`text` with its variables filled in.

    A variable whose name says that it holds a secret stays `${NAME}`: the process that needs it fills it in, so
    that no plan, snapshot or log ever holds it. It must be set all the same.

    Raises:
        ConfigError: a variable without default is not set, or a `${` is not closed, or there is too much of them.
    """
    parts, at, length = [], 0, 0
    while (start := text.find("${", at)) >= 0:
        if start > at and text[start - 1] == "$":
            parts += [text[at : start - 1], "${"]
            at = start + 2
            continue
        end = _closing(text, start + 2, where)
        if end < 0:
            raise ConfigError(f"'{text[start : start + 80]}' is not closed", where=where, fix="add the missing '}'")
        name, colon, default = text[start + 2 : end].partition(":")
        parts += [text[at:start], _value(name, default if colon else None, environ, where)]
        at = end + 1
        length += len(parts[-1])
        if length > _LONGEST:
            raise ConfigError(f"with its variables, the text is larger than {_LONGEST >> 20} MiB", where=where)
    return "".join([*parts, text[at:]])


def _value(name: str, default: str | None, environ: Mapping[str, str], where: str) -> str:
    if name in environ:
        return f"${{{name}}}" if is_secret_name(name) else environ[name]
    if default is None:
        fix = f"export {name}=..." + ("" if is_secret_name(name) else f", or give a default: ${{{name}:value}}")
        raise ConfigError(f"${{{name}}} is not set", where=where, fix=fix)
    return interpolate(default, environ, where)
