"""The options of a runtime and of a task: their parsers, and what they say of how a plan is carried out."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from primus_core import variables
from primus_core.contracts import schedulers
from primus_core.contracts.launchers import SINGLE
from primus_core.plan.plan import Plan
from primus_core.request.arguments import Parser
from primus_core.request.request import Layer, Request
from primus_machine.errors import RequestError
from primus_machine.facts import Facts

if TYPE_CHECKING:
    from primus_core.plugins.contracts import Runtime, Task
    from primus_core.plugins.outer import OuterRuntime

__all__ = [
    "NO_PREFLIGHT",
    "max_restarts",
    "only_layer",
    "runtime_parser",
    "segment_name",
    "switches_of",
    "task_parser",
    "with_options",
]


NO_PREFLIGHT = "none"
"""`--no-preflight`: over what a file or a run that is replayed says."""


def runtime_parser(runtime: Runtime | OuterRuntime, segment: str = "") -> Parser:
    """The parser of a runtime's segment, with the options that every runtime has."""
    parser = Parser(
        prog=f"primus {runtime.name}",
        epilog=runtime.epilog,
        segment=segment,
        usage=f"primus {runtime.name} [options] -- <task> [task options]",
    )
    parser.add_argument("--dry-run", action="store_true", help="show the plan without running it")
    parser.add_argument("--json", action="store_true", help="with --dry-run: print the plan as JSON")
    parser.add_argument("--debug", action="store_true", help="show debug messages, torchrun's output, and tracebacks")
    parser.add_argument(
        "--assume-host",
        metavar="FILE|GPU",
        default="",
        help="with --dry-run: plan for a machine captured by `primus env capture`, or with 8 GPUs of a model (MI300X)",
    )
    parser.add_argument(
        "--preflight", nargs="?", const="quick", default="", choices=("quick", "perf", "warn"),
        metavar="quick|perf|warn",
        help="check the nodes first; start nothing if one is not fit (warn: start in any case; default: off)",
    )  # fmt: skip
    parser.add_argument(
        "--no-preflight", dest="preflight", action="store_const", const=NO_PREFLIGHT, help=argparse.SUPPRESS
    )
    runtime.add_arguments(parser)
    return parser


def task_parser(task: Task, name: str, segment: str = "") -> Parser:
    """The parser of the task's segment."""
    parser = Parser(prog=f"primus ... -- {name}", epilog=task.epilog, segment=segment)
    task.add_arguments(parser)
    return parser


def segment_name(number: int, name: str) -> str:
    """A segment as messages call it."""
    return f"segment {number} ({name})"


def only_layer(request: Request) -> Layer:
    """The layer of a request that has one.

    Raises:
        RequestError: it has several, and the first holds no other.
    """
    if len(request.layers) > 1:
        first, second = request.layers[:2]
        what = f"segment {second.segment}: '{second.runtime}' cannot run inside '{first.runtime}'"
        raise RequestError(
            what, fix="drop one of the two", kind="nesting", options=[second.runtime], where=first.runtime
        )
    return request.layers[0]


def switches_of(args: argparse.Namespace, request: Request, task_args: argparse.Namespace | None) -> argparse.Namespace:
    """What the command line says of how to carry out the plan."""
    return argparse.Namespace(
        dry_run=args.dry_run or request.dry_run,
        json=args.json,
        debug=args.debug or request.debug,
        assume_host=args.assume_host,
        check=request.check or getattr(task_args, "check", False),
        force=request.force or getattr(task_args, "force", False),
        trust=request.trust or getattr(task_args, "trust", False),
    )


def max_restarts(args: argparse.Namespace, facts: Facts, nnodes: int, *, elsewhere: bool) -> int:
    """The most restarts in a row without progress. Ranks of several nodes start together, or not at all.

    Raises:
        RequestError: it is asked for several nodes that are started apart.
    """
    if facts.environ.get(variables.RESTARTED):
        return 0
    asked = int(getattr(args, "max_restarts", 0))
    launch = schedulers.launch(nnodes)
    if asked and nnodes > 1 and not elsewhere:
        raise RequestError(
            f"--max-restarts {asked} with {nnodes} nodes",
            why="ranks of one node cannot start again without those of the others",
            fix=f"start all nodes by one command: primus {launch} -- direct --max-restarts {asked} -- ...",
        )
    return asked


def with_options(result: Plan, args: argparse.Namespace, facts: Facts) -> Plan:
    """The plan with the runtime's options that say how to carry it out, those that this runtime has."""
    worker = result.worker
    return result._replace(
        worker=worker._replace(launcher=SINGLE) if worker and getattr(args, "single", False) else worker,
        log_file=_log_file(getattr(args, "log_file", ""), facts),
        log_limit=getattr(args, "log_limit", result.log_limit),
        grace_period_s=getattr(args, "grace_period", result.grace_period_s),
        hang_timeout_s=getattr(args, "hang_timeout", result.hang_timeout_s),
        start_timeout_s=getattr(args, "start_timeout", result.start_timeout_s),
    )


def _log_file(path: str, facts: Facts) -> str:
    if not path:
        return ""
    whole = os.path.normpath(os.path.join(facts.cwd, path))
    if not os.path.isdir(os.path.dirname(whole)) or os.path.isdir(whole):
        raise RequestError(f"--log-file {path}: no file can be made there", fix="name a file in a folder that exists")
    return whole
