"""`${VAR}` and `${VAR:default}` in configuration text, defaults nested; `$${` stays a literal `${`."""

from __future__ import annotations

from collections.abc import Mapping

from primus_core.errors import ConfigError
from primus_core.secrets.redaction import is_secret_name

__all__ = ["interpolate"]


def _closing(text: str, start: int) -> int:
    """Index of the `}` that closes the `${` before `start`, or -1."""
    depth = 1
    for index in range(start, len(text)):
        if text.startswith("${", index):
            depth += 1
        elif text[index] == "}":
            depth -= 1
            if not depth:
                return index
    return -1


def interpolate(text: str, environ: Mapping[str, str], where: str = "") -> str:
    """`text` with its variables filled in.

    A variable whose name says that it holds a secret stays `${NAME}`: the process that needs it fills it in, so
    that no plan, snapshot or log ever holds it. It must be set all the same.

    Raises:
        ConfigError: a variable without default is not set, or a `${` is not closed.
    """
    done = ""
    while (start := text.find("${")) >= 0:
        if start and text[start - 1] == "$":
            done, text = done + text[: start - 1] + "${", text[start + 2 :]
            continue
        end = _closing(text, start + 2)
        if end < 0:
            raise ConfigError(f"'{text[start:]}' is not closed", where=where, fix="add the missing '}'")
        name, colon, default = text[start + 2 : end].partition(":")
        done += text[:start] + _value(name, default if colon else None, environ, where)
        text = text[end + 1 :]
    return done + text


def _value(name: str, default: str | None, environ: Mapping[str, str], where: str) -> str:
    if name in environ:
        return f"${{{name}}}" if is_secret_name(name) else environ[name]
    if default is None:
        raise ConfigError(
            f"${{{name}}} is not set", where=where, fix=f"export {name}=..., or give a default: ${{{name}:value}}"
        )
    return interpolate(default, environ, where)
