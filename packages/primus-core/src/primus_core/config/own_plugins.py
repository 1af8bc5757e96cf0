"""A person's own folder of plugin files: `~/.config/primus/plugins/*.py` is found without a `primus.yaml`.

    $PRIMUS_PLUGINS, else $XDG_CONFIG_HOME/primus/plugins, else ~/.config/primus/plugins

What lies there is run as that person, so a file that somebody else owns or can write is refused.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping

from primus_core import submission, variables
from primus_core.errors import ConfigError

__all__ = ["files", "folder", "refusal"]

_ROOT = 0


def folder(environ: Mapping[str, str]) -> str:
    """The folder, whether it is there or not; empty: there is no home. In a container, it is the one outside."""
    if given := environ.get(variables.PLUGINS):
        return given
    home = environ.get(variables.HOME) or environ.get("HOME", "")
    config = environ.get("XDG_CONFIG_HOME", "")
    if not os.path.isabs(config):  # the XDG rules: a relative path is none
        config = os.path.join(home, ".config") if home else ""
    return os.path.join(config, "primus", "plugins") if config else ""


def files(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The plugin files in it, by name; in a submitted job, the copies of them."""
    here = folder(environ)
    if here and (submitted := submission.of(environ)):
        here = submitted.copy(here)
    if not os.path.isdir(here):  # most people have none
        return ()
    try:
        names = sorted(os.listdir(here))
    except OSError:
        return ()
    return tuple(os.path.join(here, name) for name in names if name.endswith(".py") and not name.startswith((".", "_")))


def refusal(path: str, environ: Mapping[str, str]) -> ConfigError | None:
    """Why a plugin file is not run: somebody else owns it or its folder, or can write there. None: it is run."""
    for checked in (os.path.dirname(path), path):
        if why := _of_others(checked, environ):
            fix = "look at what it does; then make it your own: chown it to yourself, chmod go-w"
            return ConfigError("this plugin file is not yours alone, and is not run", where=path, why=why, fix=fix)
    return None


def _of_others(path: str, environ: Mapping[str, str]) -> str:
    """Who else may have written a file or folder; empty: nobody."""
    try:
        found = os.stat(path)
    except OSError as error:
        return f"{path}: {error.strerror}"
    # Inside a layer of Primus the same file may have another owner's number: the layer outside has looked.
    if variables.OUTER not in environ and found.st_uid not in (os.getuid(), _ROOT):
        return f"{path} belongs to user {found.st_uid}, and you are {os.getuid()}"
    if found.st_mode & stat.S_IWOTH:
        return f"everybody may write {path}"
    if found.st_mode & stat.S_IWGRP and found.st_gid not in (found.st_uid, _ROOT):  # else: a group of one's own
        return f"the group {found.st_gid} may write {path}"
    return ""
