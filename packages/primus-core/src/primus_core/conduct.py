"""From a request to its end: planned, then shown, checked or run."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from primus_core import planner
from primus_core.errors import RequestError, RunDirectoryTaken
from primus_core.host import HostRoot
from primus_core.plan import Plan
from primus_core.plugins import Catalogue
from primus_core.request import Request

__all__ = ["carry_out"]


def carry_out(asked: Request, host: HostRoot, catalogue: Catalogue, command: tuple[str, ...]) -> int:
    """Plan `asked`, and show, check or run it; the exit code."""
    while True:
        planned = planner.plan(asked, host, catalogue, command)
        if not (planned.switches.dry_run or planned.switches.check):
            _refuse_to_run(planned)
        if planned.replay:
            from primus_core.runs import replay_report

            if answered := replay_report.ask_for_secrets(planned, host):
                host = answered
                continue
            if (code := replay_report.check(planned)) is not None:
                return code
        if planned.switches.dry_run:
            return _show(planned.plan, host.environ, as_json=planned.switches.json)
        from primus_core.launch.execute import execute

        try:
            return execute(
                planned.plan,
                planned.facts,
                lambda spoken: planner.plan(asked, host, catalogue, command, spoken=spoken, first=planned).plan,  # noqa: B023  # carried out in this very turn
                debug=planned.switches.debug,
            )
        except RunDirectoryTaken:  # another run began in this very second: the next plan takes the next name
            continue


def _refuse_to_run(planned: planner.Planned) -> None:
    dry = "--check or --dry-run" if planned.replay else "--dry-run"
    if planned.switches.assume_host:
        raise RequestError("--assume-host plans for another machine, and runs nothing", fix=f"add {dry}")
    if planned.switches.json:
        fix = f"add {dry}" + ("" if planned.replay else ", or put --json behind the task")
        raise RequestError(f"--json goes with {dry}", fix=fix)


def _show(plan: Plan, environ: Mapping[str, str], *, as_json: bool) -> int:
    from primus_core.secrets import redact, values_in

    if as_json:
        import json

        text = json.dumps(plan.to_dict(), indent=1) + "\n"
    else:
        from primus_core.show import script

        text = script(plan)
    sys.stdout.write(redact(text, values_in(plan, environ)))
    return 0
