"""The folders where hook scripts are looked for."""

from __future__ import annotations

import os
from collections.abc import Sequence

from primus_core import variables
from primus_core.config import submission
from primus_core.config.system import FILE, SystemConfig
from primus_machine.facts import Facts
from primus_machine.files import trust

__all__ = ["hook_folders"]


def hook_folders(facts: Facts, system: SystemConfig, beside: str, given: Sequence[str]) -> list[str]:
    """Where hooks are looked for: beside the project's `primus.yaml`, what it names, beside the request, `--hooks`."""
    submitted = submission.of(facts.environ)

    def here(path: str) -> str:
        whole = os.path.normpath(os.path.join(facts.cwd, os.path.expanduser(path)))
        return submitted.copy(path) if submitted else whole

    project = here("hooks") if os.path.exists(here(FILE)) else ""
    request = here(os.path.join(beside, "hooks")) if beside else ""
    whole = [here(folder) for folder in given]
    if variables.IN_HOOK in facts.environ:  # it would start itself without end
        return whole
    implied, asked = ([path] if _may_hold_hooks(path, facts) else [] for path in (project, request))
    found = [*implied, *system.hook_folders, *asked, *whole]
    if not submitted and here("hooks") not in (project, request, *found) and os.path.isdir(here("hooks")):
        trust.say_once("primus: note: hooks/ is not used: neither ./primus.yaml nor the task's file is beside it\n")
    return [*dict.fromkeys(found)]


def _may_hold_hooks(folder: str, facts: Facts) -> bool:
    """Whether a folder is there, which nobody named. One that others can write to may hold none: all in it counts."""
    if not os.path.isdir(folder):
        return False
    if why := trust.of(facts.host.environ).doubt(folder):
        trust.say(folder, why, f"the hooks in {folder}")
    return not why
