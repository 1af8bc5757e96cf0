"""The plan of a saved run, for here: from its snapshot instead of a task's arguments."""

from __future__ import annotations

import argparse
import os
import shlex

from primus_core.environment import resolve
from primus_core.environment.of_machine import of_network
from primus_core.planning.planned import Planned
from primus_core.planning.planner import Planning
from primus_core.plugins.contracts import TaskCall
from primus_core.replay import prepare
from primus_core.replay.prepare import Replay
from primus_core.runs import lookup, saved
from primus_machine.errors import RequestError

__all__ = ["plan", "refuse_settings"]


def refuse_settings(directory: str, task_args: argparse.Namespace | None) -> None:
    """Refuse what does not go with `--replay`.

    Raises:
        RequestError: there is some of it.
    """
    if getattr(task_args, "config", "") or getattr(task_args, "overrides", []):
        raise RequestError(
            "a replay takes no settings: it has those of its run",
            fix=f"to change some, start its command with them: `primus runs show {shlex.quote(directory)}` shows it",
        )
    chosen = (getattr(task_args, name, None) for name in ("always", "weights", "anew"))
    if any(one not in (None, False) for one in chosen):
        what = "--continue, --from and --new do not go with --replay"
        raise RequestError(what, why="a replay starts where its run did")


def plan(
    planning: Planning, directory: str, name: str, command: tuple[str, ...], switches: argparse.Namespace
) -> Planned:
    """Plan the run in `directory`. `name`: of the task that it must be a run of; empty: of any.

    Raises:
        RequestError: it is a run of another task.
        MachineError: it is incomplete or damaged.
    """
    kept = _kept(planning, directory)
    if name and kept.plan.task != name:
        raise RequestError(
            f"{directory} is a run of '{kept.plan.task}', not of '{name}'",
            fix=f"primus replay {shlex.quote(directory)}{' --check' * switches.check}",
        )
    facts, planning.facts = planning.facts, planning.facts._replace(environ=kept.environ)
    place = planning.runtime.distributed(planning.args, planning.facts)
    low = of_network(planning.facts, place, planning.facts.environ)
    task = kept.task._replace(environment=low.variables, notes=(*kept.task.notes, *low.notes))
    call = TaskCall((), planning.args, planning.facts, place, planning.place, planning.catalogue, planning.elsewhere)
    task = planning.with_preflight(task, planning.preflight(kept.plan.task, kept), call)
    result = planning.assemble(task, kept.plan.task, kept.plan.scope, place, kept.scripts, kept)
    planning.facts = facts
    planned = planning.with_files(planning.finished(result, command, switches), task, kept.scripts)
    return planned._replace(replay=kept, reads=(kept.saved.directory, *planned.reads))


def _kept(planning: Planning, directory: str) -> Replay:
    """What the saved run asks of the planner; after its scripts have run, what it asked before."""
    if planning.first and planning.first.replay:
        return planning.first.replay
    found = lookup.resolve(directory, planning.system.workspace or "output", planning.facts.host)
    given = resolve.from_options(getattr(planning.args, "env", []), planning.facts.environ)  # a secret, maybe
    facts = planning.facts._replace(environ={**planning.facts.environ, **{v.name: v.value for v in given if v.secret}})
    return prepare.prepare(saved.load(os.path.realpath(found)), facts, planning.place)
