"""A person's own folder of plugin files: `~/.config/primus/plugins/*.py` is found without a `primus.yaml`.

    $PRIMUS_PLUGINS, else $XDG_CONFIG_HOME/primus/plugins, else ~/.config/primus/plugins

What lies there is run as that person: only what is trusted (`trust`), as any other file of plugins.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from primus_core import variables
from primus_core.config import submission
from primus_machine.variables import HOME

__all__ = ["files", "folder"]


def folder(environ: Mapping[str, str]) -> str:
    """The folder, whether it is there or not; empty: there is no home. In a container, it is the one outside."""
    if given := environ.get(variables.PLUGINS):
        return given
    home = environ.get(HOME) or environ.get("HOME", "")
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
