"""The run directory: one per run, named by experiment and time, found again by the runs that follow."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator

from primus_core import variables
from primus_core.errors import RequestError
from primus_core.facts import Facts
from primus_core.host import HostRoot
from primus_core.plan import RunPlace

__all__ = ["COMPLETED", "earlier_files", "place", "short"]

COMPLETED = "completed"

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


def earlier_files(place: RunPlace, pattern: str) -> tuple[str, ...]:
    """Files that match `pattern` in the earlier runs of this experiment, newest run first.

    It stops at the newest run that completed, or that still goes on: what came before is done with.
    """
    import glob

    return tuple(path for run in _unfinished(place) for path in sorted(glob.glob(f"{glob.escape(run)}/{pattern}")))


def _unfinished(place: RunPlace) -> Iterator[str]:
    if not place.link:
        return
    from primus_core.runs.saved import metadata  # only an experiment with earlier runs asks

    root, name = os.path.split(place.link)
    runs = re.compile(re.escape(name) + _STAMP)
    try:
        found = sorted((entry for entry in os.listdir(root) if runs.fullmatch(entry)), key=_order, reverse=True)
    except OSError:
        return
    for entry in found:
        directory = os.path.join(root, entry)
        if directory == place.directory:  # an outer layer made it
            continue
        known = metadata(directory)
        if known.get("status") == COMPLETED or _goes_on(known):
            return
        yield directory


def _goes_on(known: dict[str, object]) -> bool:
    """Whether the run still goes on, on this host: its checkpoints are being written."""
    from primus_core.runs.saved import is_alive  # only an experiment with earlier runs asks

    host = HostRoot()
    return known.get("status") == "started" and known.get("host") == host.hostname() and is_alive(known, host)


def _order(name: str) -> tuple[str, int]:
    """By time, then by the number that tells runs of one second apart."""
    match = re.search(r"(_\d{4}_\d{2}_\d{2}_\d{6})(?:_(\d+))?$", name)
    return (match[1], int(match[2] or 1)) if match else (name, 0)
