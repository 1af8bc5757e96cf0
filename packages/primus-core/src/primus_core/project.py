"""The project's `primus.yaml`, where a person names files with plugins of their own."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

__all__ = ["Project", "find"]

FILE = "primus.yaml"
_KEYS = ("plugins",)


class Project(NamedTuple):
    """What `primus.yaml` in the current folder says; empty where there is none."""

    plugin_files: tuple[str, ...] = ()


def find(folder: str, environ: Mapping[str, str]) -> Project:
    """The project in `folder`.

    Raises:
        ConfigError: `primus.yaml` is malformed, has an unknown key, or names a plugin file that is not there.
    """
    path = os.path.join(folder, FILE)
    if not os.path.exists(path):
        return Project()
    return _read(path, environ)


def _read(path: str, environ: Mapping[str, str]) -> Project:
    from primus_core.config import files  # YAML: 20 ms that a folder without the file saves
    from primus_core.errors import ConfigError, suggestion

    document = files.read(path, environ)
    for key in document.data:
        if key not in _KEYS:
            raise ConfigError(
                f"unknown key '{key}'",
                where=document.where((key,)),
                why=f"known: {', '.join(_KEYS)}",
                fix=suggestion(key, _KEYS) or "remove it",
            )
    listed = document.data.get("plugins") or []
    if not isinstance(listed, list) or not all(isinstance(item, str) for item in listed):
        raise ConfigError("`plugins` takes a list of paths", where=document.where(("plugins",)))
    found = [os.path.normpath(os.path.join(os.path.dirname(path), os.path.expanduser(item))) for item in listed]
    for index, item in enumerate(found):
        if not os.path.isfile(item):
            raise ConfigError(f"there is no plugin file '{listed[index]}'", where=document.where(("plugins", index)))
    return Project(tuple(found))
