"""Paths in an experiment that is written anew: absolute where they would mean something else in another folder."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from primus_core.config.document import Document, Path, at
from primus_core.config.files import TEMPLATE
from primus_core.errors import MachineError
from primus_core.plugins.catalogue import Catalogue
from primus_machine.host import HostRoot
from primus_train import paths
from primus_train.backend import load_backend
from primus_train.planning import packaged_folders

__all__ = ["make_absolute", "presets_beside"]


def make_absolute(experiment: Document, catalogue: Catalogue) -> dict[Path, Any]:
    """Make the relative paths of an experiment absolute, in place, and return them by their place."""
    data: Any = experiment.data
    cwd = HostRoot().cwd()
    found = _bases(experiment, cwd)
    modules = at(data, ("modules",))
    for name, module in modules.items() if isinstance(modules, Mapping) else ():
        kinds: Mapping[str, paths.PathKind] = {}
        presets = ""
        framework = at(module, ("framework",))
        if framework in catalogue.names("backends"):
            with suppress(MachineError):  # a broken backend is no reason not to show the file
                backend = load_backend(catalogue, framework)
                kinds, presets = backend.paths() if hasattr(backend, "paths") else {}, backend.presets()
        found |= paths.relative(experiment, name, kinds, cwd, packaged_folders(presets))
    for path, value in found.items():
        at(data, path[:-1])[path[-1]] = value
    return found


def _bases(experiment: Document, cwd: str) -> dict[Path, Any]:
    given = experiment.data.get("extends")
    folder = os.path.dirname(os.path.join(cwd, experiment.where(())))

    def whole(base: Any) -> Any:
        is_path = isinstance(base, str) and not base.startswith((TEMPLATE, "${"))
        return os.path.normpath(os.path.join(folder, base)) if is_path else base

    made = [whole(base) for base in given] if isinstance(given, list) else whole(given)
    return {("extends",): made} if made != given else {}


def presets_beside(experiment: Mapping[str, Any]) -> list[str]:
    """Return the names of files that are looked for beside the experiment alone."""
    modules = experiment.get("modules")
    named = [at(one, (key,)) for one in modules.values() for key in ("model", "config")] if modules else []
    return [name for name in named if isinstance(name, str) and name.startswith("./")]
