"""From a request to its end: planned, then shown, checked or run."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import cast

from primus_core.environment.nesting import outside
from primus_core.errors import RequestError, RunDirectoryTaken
from primus_core.execute import requirements
from primus_core.files import trust
from primus_core.host import HostRoot
from primus_core.planning import planner
from primus_core.planning.planned import Planned
from primus_core.plugins.catalogue import Catalogue
from primus_core.plugins.contracts import Cleaning, OuterRuntime
from primus_core.request.request import Request

__all__ = ["carry_out"]


def carry_out(asked: Request, host: HostRoot, catalogue: Catalogue, command: tuple[str, ...]) -> int:
    """Plan `asked`, and show, check or run it; the exit code."""
    host = outside(host)
    if not asked.task and not asked.replay and (code := _cleaned(asked, host, catalogue)) is not None:
        return code
    while True:
        planned = _plan(asked, host, catalogue, command)
        if not (planned.switches.dry_run or planned.switches.check):
            _refuse_to_run(planned)
        if believing := _believing(planned, host):
            host = believing
            continue
        if planned.replay and (not planned.inner or planned.switches.check):
            from primus_core.planning import replay_report

            if answered := replay_report.ask_for_secrets(planned, host):
                host = answered
                continue
            if (code := replay_report.check(planned)) is not None:
                return code
        if planned.switches.dry_run:
            if not planned.inner and planned.facts.host.is_here:
                requirements.check_plan(planned.plan, host.environ, installed=False)
            return _show(planned, host.environ, as_json=planned.switches.json)
        gc.enable()  # the command line has switched it off while it plans
        if planned.inner:
            from primus_core.execute.outer import execute_outer

            try:
                return execute_outer(planned.plan, planned.facts, debug=planned.switches.debug)
            except RunDirectoryTaken:
                continue
        from primus_core.execute.execute import execute

        try:
            return execute(
                planned.plan,
                planned.facts,
                lambda spoken: planner.plan(asked, host, catalogue, command, spoken=spoken, first=planned).plan,  # noqa: B023  # carried out in this very turn
                debug=planned.switches.debug,
            )
        except RunDirectoryTaken:  # another run began in this very second: the next plan takes the next name
            continue


def _believing(planned: Planned, host: HostRoot) -> HostRoot | None:
    """Before a run is replayed that is not believed: the machine as seen by somebody who does, for this command.

    Raises:
        RequestError: nobody says that it is to be believed.
    """
    if not planned.replay or planned.switches.dry_run or planned.switches.check:
        return None  # reading is not believing
    directory = planned.replay.saved.directory
    if not (why := planned.replay.saved.doubt(trust.of(host.environ))):
        return None
    handed = os.pathsep not in directory  # else no variable can name it
    if not (handed and (planned.switches.trust or _agrees(planned, host, f"{directory}: {why}"))):
        raise RequestError(
            f"the run {directory} is not trusted",
            why=why,
            fix=f"look at what it would run: add --dry-run; to start it: add --trust\nor {trust.fix(directory)}",
        )
    return replace(host, environ=trust.with_name(host.environ, directory))


def _agrees(planned: Planned, host: HostRoot, why: str) -> bool:
    """Show what would run, and ask. A batch job has nobody to ask."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    from primus_core.plan.secret_values import values_in
    from primus_core.plan.show import script
    from primus_core.secrets.redaction import redact

    text = redact(script(planned.plan), values_in(planned.plan, host.environ))
    sys.stderr.write("".join(c if c.isprintable() or c in "\n\t" else ascii(c)[1:-1] for c in text))
    sys.stderr.write(f"primus: {why}\nprimus: start this? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _plan(asked: Request, host: HostRoot, catalogue: Catalogue, command: tuple[str, ...]) -> Planned:
    """The plan of all layers."""
    if not hasattr(catalogue.runtime(asked.layers[0].runtime), "wrap"):
        return planner.plan(asked, host, catalogue, command)
    from primus_core.planning import outer_layers

    def inside(request: Request, host: HostRoot) -> Planned:
        if len(request.layers) > 1 or outer_layers.is_outer(catalogue.runtime(request.layers[0].runtime)):
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
        fix = f"add {dry}" + ("" if planned.replay else ", or put --json behind the task")
        raise RequestError(f"--json goes with {dry}", fix=fix)


def _show(planned: Planned, environ: Mapping[str, str], *, as_json: bool) -> int:
    from primus_core.plan.secret_values import values_in
    from primus_core.secrets.redaction import redact

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
    sys.stdout.write(redact(text, [value for plan in plans for value in values_in(plan, environ)]))
    return 0
