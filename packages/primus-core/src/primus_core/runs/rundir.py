"""The run directory: one per run, named by experiment and time, found again by the runs that follow."""

from __future__ import annotations

import os
import re

from primus_core import variables
from primus_core.plan.plan import Distributed, RunPlace
from primus_core.runs.names import EXPERIMENT, stamp
from primus_machine.errors import RequestError
from primus_machine.facts import Facts
from primus_machine.variables import OUTER, RUN_DIR

__all__ = ["COMPLETED", "apart", "as_line", "place", "printed_in", "short"]

COMPLETED = "completed"

_LONGEST = 200


def place(facts: Facts, workspace: str, exp_name: str) -> RunPlace:
    """Where a run that starts now keeps its files: `<workspace>/<exp_name>_<YYYY_MM_DD_HHMMSS>`. Makes nothing.

    Raises:
        RequestError: the name cannot be a folder's.
    """
    if joined := facts.environ.get(RUN_DIR):
        joined = os.path.join(facts.cwd, joined)
        run_id = facts.environ.get(variables.RUN_ID) or os.path.basename(joined)
        outer = facts.environ.get(OUTER, "")
        link = os.path.join(os.path.dirname(joined), exp_name) if outer else ""
        return RunPlace(run_id, joined, link, joined=True, outer=outer)
    if len(exp_name) > _LONGEST:
        raise RequestError(
            f"the name of the experiment has {len(exp_name)} characters",
            why=f"it becomes a folder's name, which may have {_LONGEST} characters plus the time",
            fix="choose a shorter `exp_name:`",
        )
    if "\0" in workspace:
        raise RequestError("the workspace contains a NUL character", fix="write the path without it")
    if not re.fullmatch(EXPERIMENT, exp_name) or exp_name == "latest":
        why = "it becomes a folder's name, and `latest` means the newest run"
        fix = "choose a name that begins with a letter or a digit, and has letters, digits, '.', '_', '-' and '+'"
        raise RequestError(f"'{exp_name}' cannot name a run", why=why, fix=fix)
    root = os.path.normpath(os.path.join(facts.cwd, os.path.expanduser(workspace)))
    first = f"{exp_name}_{stamp(facts.time)}"
    name, count = first, 1
    while facts.host.exists(os.path.join(root, name)):
        count += 1
        name = f"{first}_{count}"
    return RunPlace(name, os.path.join(root, name), os.path.join(root, exp_name))


def apart(place: RunPlace, node: Distributed) -> tuple[str, ...]:
    """What to know of a node that was started by hand, and makes a run directory that node 0 does not know."""
    if place.joined or not node.node_rank:
        return ()
    why = f"node rank {node.node_rank} keeps its logs and events in its own run directory, apart from those of node 0"
    return (f"{why}: set {RUN_DIR} to the same folder on all nodes to have one",)


_RUN = "run "


def as_line(directory: str) -> str:
    """Return the line with which a launch begins on the console."""
    return f"{_RUN}{short(directory)}"


def printed_in(text: str) -> str:
    """Return the run directory that a launch has printed into `text`; empty: it has made none."""
    begin = f"primus: {_RUN}"
    return next((line.removeprefix(begin) for line in text.splitlines() if line.startswith(begin)), "")


def short(path: str) -> str:
    """A path as a person in the current folder writes it."""
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else relative
