"""The plugins in a person's own files: tasks and Python hooks, found in the text, without running it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from primus_core.config import submission
from primus_core.hooks import files as hook_files
from primus_core.hooks.files import Declared
from primus_core.plugins import dropped_in
from primus_core.plugins.catalogue import Plugin
from primus_machine.errors import PrimusError
from primus_machine.files import own_code
from primus_machine.files.atomic import regular

__all__ = ["check_hooks", "plugins"]


def plugins(paths: Iterable[str]) -> Iterator[Plugin]:
    """The tasks and hooks in these files. A file that cannot be read is a plugin whose `load` says why."""
    for path in paths:
        source = os.path.relpath(submission.original(path))
        try:
            tree = own_code.parsed(path)
        except PrimusError as error:  # one broken file must not break the commands of the others
            yield Plugin(_meant(path), f"({source})", source, path, lambda: "", partial(_raise, error))
            continue
        for name, summary in dropped_in.declared(tree):
            yield Plugin("tasks", name, source, path, partial(str, summary), partial(_task_in, path, name))
        if hooks := hook_files.declared(tree):
            name = source.removesuffix(".py")  # whole, as no two files may have one name
            yield Plugin("hooks", name, source, path, lambda: "", partial(_hooks_in, path, hooks))


def _meant(path: str) -> str:
    """The kind of a file that cannot be read as Python: a launch without the hooks in it must not pass in silence."""
    try:
        with open(path, encoding="utf-8", errors="replace", opener=regular) as file:
            return "hooks" if "hookimpl" in file.read() else "tasks"
    except OSError:
        return "tasks"


def _raise(error: PrimusError) -> Any:
    raise error


def _task_in(path: str, name: str) -> Any:
    return dropped_in.load(path)[name]


def check_hooks(paths: Iterable[str]) -> None:
    """Refuse hooks that do not exist, without running the files.

    Raises:
        ConfigError: a hook has a name or an argument that no hook has.
    """
    for path in paths:
        hook_files.check(hook_files.declared(own_code.parsed(path)), os.path.relpath(path))


def _hooks_in(path: str, hooks: Sequence[Declared]) -> Any:
    hook_files.check(hooks, os.path.relpath(path))
    return own_code.module(path)
