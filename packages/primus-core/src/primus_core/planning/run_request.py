"""From a request to its end: planned, then shown, checked or run."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

from primus_core.environment.nesting import outside
from primus_core.planning import planner
from primus_core.planning.planned import Planned
from primus_core.plugins.catalogue import Catalogue
from primus_core.request.request import Request
from primus_machine.errors import RequestError, RunDirectoryTaken
from primus_machine.host import HostRoot

if TYPE_CHECKING:
    from primus_core.hooks.script_output import ScriptOutput
    from primus_core.plan.plan import Plan

__all__ = ["plan_request", "run_request"]


def run_request(asked: Request, host: HostRoot, catalogue: Catalogue, command: tuple[str, ...]) -> int:
    """Plan `asked`, and show, check or run it; the exit code."""
    host = outside(host)
    if not asked.task and not asked.replay:
        from primus_core.planning import outer_layers

        if (code := outer_layers.clean(asked, host, catalogue)) is not None:
            return code
    while True:
        planned = plan_request(asked, host, catalogue, command)
        if not (planned.switches.dry_run or planned.switches.check):
            _refuse_to_run(planned)
        if planned.replay:
            from primus_core.planning import replay_check

            if answered := replay_check.answered(planned, planned.replay, host):
                host = answered
                continue
            if (code := replay_check.checked(planned, planned.replay)) is not None:
                return code
        if planned.switches.dry_run:
            from primus_core.planning import dry_run

            return dry_run.show(planned, host.environ)
        try:
            return _execute(planned, asked, host, catalogue, command)
        except RunDirectoryTaken:  # another run began in this very second: the next plan takes the next name
            continue


def _execute(planned: Planned, asked: Request, host: HostRoot, catalogue: Catalogue, command: tuple[str, ...]) -> int:
    gc.enable()  # the command line has switched it off while it plans
    from primus_core.execute.execute import execute

    def replan(printed: ScriptOutput) -> Plan:
        return planner.plan(asked, host, catalogue, command, printed=printed, first=planned).plan

    return execute(planned.plan, planned.facts, replan, debug=planned.switches.debug)


def plan_request(asked: Request, host: HostRoot, catalogue: Catalogue, command: tuple[str, ...]) -> Planned:
    """The plan of all layers.

    Raises:
        RequestError: something that was asked for is wrong.
        MachineError: the environment cannot run it.
    """
    if not hasattr(catalogue.runtime(asked.layers[0].runtime), "wrap"):
        return planner.plan(asked, host, catalogue, command)
    from primus_core.planning import outer_layers

    def inside(request: Request, host: HostRoot) -> Planned:
        if outer_layers.is_outer(catalogue.runtime(request.layers[0].runtime)):
            return outer_layers.plan(request, host, catalogue, inside)
        return planner.plan(request, host, catalogue, command, elsewhere=True)

    return outer_layers.finished(outer_layers.plan(asked, host, catalogue, inside), command, host.environ)


def _refuse_to_run(planned: Planned) -> None:
    dry = "--check or --dry-run" if planned.replay else "--dry-run"
    if planned.switches.assume_host:
        fix = f"add {dry}; to check a captured machine: primus direct -- preflight --assume-host FILE"
        raise RequestError("--assume-host plans for another machine, and runs nothing", fix=fix)
    if planned.switches.json:
        fix = f"add {dry}" + ("" if planned.replay else ", or move --json behind the task")
        raise RequestError(f"--json requires {dry}", fix=fix)
