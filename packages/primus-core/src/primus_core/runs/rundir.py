"""The run directory: one per run, named by experiment and time, found again by the runs that follow."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator

from primus_core import variables
from primus_core.errors import RequestError
from primus_core.machine.facts import Facts
from primus_core.plan.plan import RunPlace

__all__ = ["COMPLETED", "place", "runs_of", "short"]

COMPLETED = "completed"

_LONGEST = 200
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
_STAMP = r"_\d{4}_\d{2}_\d{2}_\d{6}(_\d+)?"


def place(facts: Facts, workspace: str, exp_name: str) -> RunPlace:
    """Where a run that starts now keeps its files: `<workspace>/<exp_name>_<YYYY_MM_DD_HHMMSS>`. Makes nothing.

    Raises:
        RequestError: the name cannot be a folder's.
    """
    if joined := facts.environ.get(variables.RUN_DIR):
        joined = os.path.join(facts.cwd, joined)
        run_id = facts.environ.get(variables.RUN_ID) or os.path.basename(joined)
        outer = facts.environ.get(variables.OUTER, "")
        link = os.path.join(os.path.dirname(joined), exp_name) if outer else ""
        return RunPlace(run_id, joined, link, joined=True, outer=outer)
    if len(exp_name) > _LONGEST:
        raise RequestError(
            f"the name of the experiment has {len(exp_name)} characters",
            why=f"it becomes a folder's name, which may have {_LONGEST} beside the time",
            fix="choose a shorter `exp_name:`",
        )
    if "\0" in workspace:
        raise RequestError("the workspace holds a NUL character", fix="write the path without it")
    if not _NAME.fullmatch(exp_name):
        raise RequestError(
            f"'{exp_name}' cannot name a run",
            why="it becomes a folder's name",
            fix="use letters, digits, '.', '_', '-' and '+'",
        )
    root = os.path.normpath(os.path.join(facts.cwd, os.path.expanduser(workspace)))
    stamp = time.strftime("%Y_%m_%d_%H%M%S", time.localtime(facts.time))
    name, count = f"{exp_name}_{stamp}", 1
    while facts.host.exists(os.path.join(root, name)):
        count += 1
        name = f"{exp_name}_{stamp}_{count}"
    return RunPlace(name, os.path.join(root, name), os.path.join(root, exp_name))


def short(path: str) -> str:
    """A path as a person in the current folder writes it."""
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else relative


def runs_of(place: RunPlace) -> Iterator[str]:
    """The directories of the experiment's runs before the one at `place`, newest first."""
    if not place.link:
        return
    root, name = os.path.split(place.link)
    runs = re.compile(re.escape(name) + _STAMP)
    own = os.path.basename(place.directory)
    try:
        found = sorted((entry for entry in os.listdir(root) if runs.fullmatch(entry)), key=_order, reverse=True)
    except OSError:
        return
    for entry in found:  # a job that is put back into the queue has runs after it, too
        if entry != own and (not runs.fullmatch(own) or _order(entry) <= _order(own)):
            yield os.path.join(root, entry)


def _order(name: str) -> tuple[str, int]:
    """By time, then by the number that tells runs of one second apart."""
    match = re.search(r"(_\d{4}_\d{2}_\d{2}_\d{6})(?:_(\d+))?$", name)
    return (match[1], int(match[2] or 1)) if match else (name, 0)
