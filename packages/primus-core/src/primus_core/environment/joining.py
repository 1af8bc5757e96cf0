"""The variables that make the layers inside an outer one parts of its run."""

from __future__ import annotations

import os
from collections.abc import Sequence

from primus_core import variables
from primus_core.config import own_plugins
from primus_core.environment import resolve
from primus_core.environment.nesting import parent_of
from primus_core.plan.plan import RunPlace, Variable
from primus_machine.files import trust
from primus_machine.host import HostRoot
from primus_machine.variables import HOME, OUTER, RUN_DIR, TRUSTED

__all__ = ["joining"]


def joining(
    runtime: str, place: RunPlace, host: HostRoot, reads: Sequence[str], *, elsewhere: bool
) -> tuple[Variable, ...]:
    """Those for the layers inside `runtime`, which need the files `reads`. `elsewhere`: on other machines."""
    return (
        Variable(RUN_DIR, place.directory, "primus", "where this run keeps its files"),
        Variable(variables.RUN_ID, place.run_id, "primus", "names the run"),
        Variable(OUTER, runtime, "primus", "the layer that keeps metadata.json"),
        *_set(variables.PARENT, parent_of(host.environ), "the run that started this one"),
        Variable(variables.CACHE, resolve.cache(host.environ), "primus", "caches, kept for later runs"),
        *_set(HOME, _home(host), "where ~/.primus.yaml is"),
        *_set(variables.PLUGINS, _plugins(host), "your own plugin files"),
        *_set(variables.CONFIG, _config(host), "the last file of the system config"),
        # One that has several nodes restarts them together.
        *_set(variables.RESTARTED, runtime if elsewhere else "", "starts the ranks of all nodes again"),
        *resolve.of_python(host.cwd(), host.environ),
        *_set(TRUSTED, _trusted(() if elsewhere else reads, host), "files that were trusted outside"),
    )


def _set(name: str, value: str, why: str) -> tuple[Variable, ...]:
    """The variable, unless it is empty."""
    return (Variable(name, value, "primus", why),) if value else ()


def _home(host: HostRoot) -> str:
    return host.environ.get(HOME) or host.environ.get("HOME") or ""


def _plugins(host: HostRoot) -> str:
    """Where the person's own plugin files are, for a layer with another home."""
    folder = own_plugins.folder(host.environ)
    return folder if os.path.isdir(folder) else ""


def _config(host: HostRoot) -> str:
    """The site's file, where a variable names it."""
    path = host.environ.get(variables.CONFIG, "")
    return os.path.join(host.cwd(), path) if path else ""


def _trusted(reads: Sequence[str], host: HostRoot) -> str:
    """What is trusted here: inside, files may seem to have another owner. A job may wait for hours, in which some could
    be replaced: those are asked about again.
    """
    known = trust.of(host.environ)
    lasting = (path for path in reads if not known.doubt(path) and not known.may_be_replaced(path))
    return os.pathsep.join(path for path in dict.fromkeys((*known.names, *lasting)) if os.pathsep not in path)
