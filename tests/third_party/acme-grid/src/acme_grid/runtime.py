"""Run on the nodes of Acme Grid: now, or once it has room."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Mapping

from primus_core.plan.plan import PlannedFile, Requirement, SchedulerStep, Step
from primus_core.plugins.contracts import OuterCall, OuterPlan, OuterRuntime
from primus_core.request.arguments import Parser, whole_number

_SCHEDULER = "acme-grid"
_FIX = "run this where Acme Grid is, or without it: primus direct -- ..."
_REFUSED = 255
"""`acme-run` started nothing."""


class Grid:
    """Runtime `grid`."""

    name = "grid"
    holds = frozenset({"container", "direct"})
    epilog = "examples:\n  primus grid --nodes 2 -- toil\n  primus grid --nodes 2 --submit -- direct -- toil"

    def add_arguments(self, parser: Parser) -> None:
        parser.add_argument("--nodes", type=whole_number, default=1, metavar="N", help="number of nodes (default 1)")
        parser.add_argument("--slots", type=whole_number, default=1, metavar="N", help="ranks on each (default 1)")
        parser.add_argument("--account", default="", metavar="NAME", help="who pays for it")
        parser.add_argument("--submit", action="store_true", help="queue the run, and return")
        parser.add_argument("--max-restarts", type=whole_number, metavar="N", help="restart on other nodes")

    def inside(self, args: argparse.Namespace, environ: Mapping[str, str]) -> Mapping[str, str]:
        """What the first node will find."""
        shape = {"ACME_NODES": str(args.nodes), "ACME_SLOTS": str(args.slots), "ACME_NODE": "0"}
        return {"ACME_JOB": "unknown", "ACME_HOSTS": "first-node-of-the-job", **shape}

    def wrap(self, call: OuterCall) -> OuterPlan:
        return _submitted(call) if call.args.submit else _now(call)


def _now(call: OuterCall) -> OuterPlan:
    """One Primus on each node. Of a job that was submitted, the whole of it may begin again."""
    args, job = call.args, call.facts.environ.get("ACME_JOB", "")
    restarts = call.max_restarts if args.max_restarts is None else args.max_restarts
    words = (
        "step",
        f"--nodes={args.nodes}",
        f"--slots={args.slots}",
        f"--account={args.account}",
        "--",
        call.facts.python,
        "-m",
        "primus_core",
    )
    again = ("acme-requeue", job) if job and restarts else ()
    asked = SchedulerStep(_SCHEDULER, together=True, leaves_out=True, requeue=again)
    step = Step("acme-run", ("acme-run", *words, *call.inner), call.facts.cwd, kind="worker", scheduler=asked,
                refusals=(_REFUSED,))  # fmt: skip
    return OuterPlan((step,), requires=(Requirement("command", "acme-run", _FIX),), max_restarts=restarts)


def _submitted(call: OuterCall) -> OuterPlan:
    """A job whose script does the same without `--submit`."""
    args, directory = call.args, call.place.directory
    restarts = () if args.max_restarts is None else ("--max-restarts", str(args.max_restarts))
    layer = call.again("grid", "--nodes", str(args.nodes), "--slots", str(args.slots), *restarts)
    exports = [f"export {variable.name}={shlex.quote(variable.value)}" for variable in call.of_job]
    starts = f"exec {shlex.join((call.facts.python, '-m', 'primus_core', *layer))}"
    script = PlannedFile("grid.sh", "\n".join(("#!/bin/sh", *exports, starts, "")), mode=0o755)
    argv = ("acme-submit", f"--nodes={args.nodes}", f"--log={directory}/logs/grid_%j.log", f"{directory}/grid.sh")
    step = Step("acme-submit", argv, call.facts.cwd, kind="submit", scheduler=SchedulerStep(_SCHEDULER), refusals=(2,))
    return OuterPlan((step,), files=(script,), requires=(Requirement("command", "acme-submit", _FIX),))


GRID: OuterRuntime = Grid()
