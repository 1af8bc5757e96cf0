"""Secrets of the command line stay out of the process list, which everybody on a machine can read."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from primus_machine.secrets.redaction import is_secret_name, looks_secret

__all__ = ["hide_secrets"]

_ENV_FLAGS = ("--env", "-e")


def _joined_flag(word: str) -> str:
    """The flag in `--env=K=V` and `-eK=V`; empty: none stands there."""
    if word.startswith("--env="):
        return "--env="
    return "-e" if word.startswith("-e") and len(word) > 2 else ""


def hide_secrets(words: list[str], end: int, environ: Mapping[str, str]) -> None:
    """Begin again without secret values in the process list: `--env HF_TOKEN=x` becomes `--env HF_TOKEN`, x inherited.

    Everybody on a machine can read every command line; only the owner can read an environment. The words from `end`
    on are the task's own.
    """
    found: dict[str, str] = {}
    cleaned = list(words)
    for index in range(end):
        flag = _joined_flag(words[index])
        name, equals, value = words[index][len(flag) :].partition("=")
        is_env = flag or (index > 0 and words[index - 1] in _ENV_FLAGS)
        if is_env and equals and (is_secret_name(name) or looks_secret(value)):
            found[name] = value
            cleaned[index] = f"{flag}{name}"
    if found:
        start = sys.orig_argv[: len(sys.orig_argv) - len(words)]
        os.execve(sys.executable, [*start, *cleaned], {**environ, **found})  # noqa: S606  # the same command again
