"""From a request to its end: planned, then shown, checked or run."""

from __future__ import annotations

import gc
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from primus_core import requirements
from primus_core.environment.nesting import outside
from primus_core.planning import planner
from primus_core.planning.planned import Planned
from primus_core.plugins.catalogue import Catalogue
from primus_core.plugins.contracts import Cleaning, OuterRuntime
from primus_core.request.request import Request
from primus_machine.errors import RequestError, RunDirectoryTaken
from primus_machine.host import HostRoot

if TYPE_CHECKING:
    from primus_core.hooks.script_output import ScriptOutput
    from primus_core.plan.plan import Plan
    from primus_core.replay.prepare import Replay

__all__ = ["run_request"]


def run_request(asked: Request, host: HostRoot, catalogue: Catalogue, command: tuple[str, ...]) -> int:
    """Plan `asked`, and show, check or run it; the exit code."""
    host = outside(host)
    if not asked.task and not asked.replay and (code := _cleaned(asked, host, catalogue)) is not None:
        return code
    while True:
        planned = _plan(asked, host, catalogue, command)
        if not (planned.switches.dry_run or planned.switches.check):
            _refuse_to_run(planned)
        if planned.replay:
            if answered := _answered(planned, planned.replay, host):
                host = answered
                continue
            if (code := _checked(planned, planned.replay)) is not None:
                return code
        if planned.switches.dry_run:
            return _show(planned, host.environ)
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


def _answered(planned: Planned, replay: Replay, host: HostRoot) -> HostRoot | None:
    """The machine with what a person answers before a run is replayed; None: there is nothing to ask."""
    from primus_core.replay import consent

    if trusting := consent.trusting(replay, planned.plan, planned.switches, host):
        return trusting
    return None if planned.inner else consent.secrets(replay, planned.switches, host)


def _checked(planned: Planned, replay: Replay) -> int | None:
    """Say what equals and what differs, where the ranks start or --check asks; the exit code if that is all."""
    if planned.inner and not planned.switches.check:
        return None
    from primus_core.replay import report

    inside = planned.innermost
    found = report.compared(inside.plan, inside.facts, replay, planned.around)
    return report.check(found, replay, planned.switches)


def _plan(asked: Request, host: HostRoot, catalogue: Catalogue, command: tuple[str, ...]) -> Planned:
    """The plan of all layers."""
    if not hasattr(catalogue.runtime(asked.layers[0].runtime), "wrap"):
        return planner.plan(asked, host, catalogue, command)
    from primus_core.planning import outer_layers

    def inside(request: Request, host: HostRoot) -> Planned:
        if outer_layers.is_outer(catalogue.runtime(request.layers[0].runtime)):
            return outer_layers.plan(request, host, catalogue, inside)
        return planner.plan(request, host, catalogue, command, elsewhere=True)

    return outer_layers.finished(outer_layers.plan(asked, host, catalogue, inside), command, host.environ)


def _cleaned(asked: Request, host: HostRoot, catalogue: Catalogue) -> int | None:
    """What a runtime with `--clean`, and without a task, comes to; None: this is none."""
    [layer, *inside] = asked.layers
    runtime = catalogue.runtime(layer.runtime)
    if inside or not isinstance(runtime, Cleaning):
        return None
    from primus_core.planning import outer_layers

    args = outer_layers.parsed(cast("OuterRuntime", runtime), layer, catalogue)
    return runtime.clean(args, host, dry_run=args.dry_run or asked.dry_run) if args.clean else None


def _refuse_to_run(planned: Planned) -> None:
    dry = "--check or --dry-run" if planned.replay else "--dry-run"
    if planned.switches.assume_host:
        raise RequestError("--assume-host plans for another machine, and runs nothing", fix=f"add {dry}")
    if planned.switches.json:
        fix = f"add {dry}" + ("" if planned.replay else ", or move --json behind the task")
        raise RequestError(f"--json requires {dry}", fix=fix)


def _show(planned: Planned, environ: Mapping[str, str]) -> int:
    from primus_core.plan.secret_values import values_in
    from primus_machine.secrets.redaction import redact
    from primus_machine.text import printable

    if not planned.inner and planned.facts.host.is_here:
        requirements.check_plan(planned.plan, environ, installed=False)
    as_json = planned.switches.json
    plans = [planned.plan]
    while planned.inner:
        planned = planned.inner
        plans.append(planned.plan)
    if as_json:
        import json

        outer, *inner = [plan.to_dict() for plan in plans]
        text = json.dumps({**outer, "inner_plans": inner} if inner else outer, indent=1) + "\n"
    else:
        from primus_core.plan.show import script

        text = script(*plans)
    text = redact(text, [value for plan in plans for value in values_in(plan, environ)])
    sys.stdout.write(printable(text, "\n\t") if sys.stdout.isatty() else text)  # a shell needs every byte
    return 0
