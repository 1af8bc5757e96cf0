"""Request + facts → plan. Pure: it reads configuration, and writes, starts and installs nothing."""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass, replace

from primus_core import environment, metadata, variables
from primus_core.arguments import Parser, flags_of, parse_segment
from primus_core.contracts import Runtime, RuntimeCall, Task, TaskCall, TaskPlan
from primus_core.errors import RequestError
from primus_core.facts import Facts
from primus_core.plan import SCHEMA, Plan, Variable
from primus_core.plugins import Catalogue
from primus_core.request import Layer, Request
from primus_core.rundir import place
from primus_core.secrets import redact_words, values_in

__all__ = ["Planned", "plan", "runtime_parser", "task_parser"]


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan, and the switches of the command line that are not part of it."""

    plan: Plan
    dry_run: bool
    json: bool
    debug: bool


def runtime_parser(runtime: Runtime, segment: str = "") -> Parser:
    """The parser of a runtime's segment, with the options that every runtime has."""
    parser = Parser(
        prog=f"primus {runtime.name}",
        epilog=runtime.epilog,
        segment=segment,
        usage=f"primus {runtime.name} [options] -- <task> [task options]",
    )
    parser.add_argument("--dry-run", action="store_true", help="show what would be done, and do nothing")
    parser.add_argument("--json", action="store_true", help="with --dry-run: the plan as JSON")
    parser.add_argument("--debug", action="store_true", help="more text: torchrun's own, and tracebacks of Primus")
    runtime.add_arguments(parser)
    return parser


def task_parser(task: Task, name: str, segment: str = "") -> Parser:
    """The parser of the task's segment."""
    parser = Parser(prog=f"primus ... -- {name}", epilog=task.epilog, segment=segment)
    task.add_arguments(parser)
    return parser


def plan(request: Request, facts: Facts, catalogue: Catalogue, command: tuple[str, ...]) -> Planned:
    """The plan for `request` on the machine of `facts`.

    Raises:
        RequestError: anything about the request or its files is wrong.
    """
    layer = _only_layer(request)
    runtime = catalogue.runtime(layer.runtime)
    parser = runtime_parser(runtime, _segment(layer.segment, layer.runtime))
    args = parse_segment(parser, layer.words)
    if not request.task:
        raise RequestError(
            f"`primus {layer.runtime}` needs a task",
            why="nothing follows the runtime's options",
            fix=f"primus {layer.runtime} -- <task>; tasks: {', '.join(catalogue.names('tasks'))}",
        )
    task, name, words = catalogue.task(request.task)
    sub = task_parser(task, name, _segment(request.task_segment, name))
    task_args = parse_segment(sub, words, elsewhere=set(flags_of(parser)) - set(flags_of(sub)))
    place_in_job = runtime.distributed(args, facts)
    call = TaskCall(words, task_args, facts, place_in_job, lambda workspace, exp: place(facts, workspace, exp))
    task_plan = task.plan(call)
    result = _assemble(task_plan, name, args, runtime, RuntimeCall(args, facts, place_in_job, task_plan, task.scope))
    result = replace(result, command=redact_words(command, values_in(result, facts.environ)))
    return Planned(result, args.dry_run or request.dry_run, args.json, args.debug or request.debug)


def _segment(number: int, name: str) -> str:
    return f"segment {number} ({name})"


def _only_layer(request: Request) -> Layer:
    if len(request.layers) > 1:
        first, second = request.layers[0].runtime, request.layers[1].runtime
        raise RequestError(f"segment 2: '{second}' cannot run inside '{first}'", fix="drop one of the two")
    return request.layers[0]


def _assemble(task: TaskPlan, name: str, args: argparse.Namespace, runtime: Runtime, call: RuntimeCall) -> Plan:
    planned = runtime.plan(call)
    options = environment.from_options(getattr(args, "env", []), call.facts.environ)
    own = (
        Variable(variables.RUN_DIR, task.place.directory, "primus", "where this run keeps its files"),
        Variable(variables.RUN_ID, task.place.run_id, "primus", "names the run"),
        Variable(variables.METRICS_FILE, f"{task.place.directory}/metrics.jsonl", "primus", "step metrics go here"),
    )
    return Plan(
        schema=SCHEMA,
        primus_version=metadata.version_of("primus-core"),
        command=(),
        runtime=runtime.name,
        task=name,
        place=task.place,
        distributed=call.distributed,
        environment=environment.merge(
            call.facts.environ, low=task.environment, forced=(*planned.environment, *own), options=options
        ),
        steps=planned.steps,
        files=task.files,
        requires=tuple(dict.fromkeys((*task.requires, *planned.requires))),
        config=task.config,
        notes=task.notes,
        next_steps=task.next_steps,
        metrics_rank=task.metrics_rank,
        grace_period_s=getattr(args, "grace_period", 8.0),
        log_file=_log_file(getattr(args, "log_file", ""), call.facts),
    )


def _log_file(path: str, facts: Facts) -> str:
    if not path:
        return ""
    whole = os.path.normpath(os.path.join(facts.cwd, path))
    if not os.path.isdir(os.path.dirname(whole)) or os.path.isdir(whole):
        raise RequestError(f"--log-file {path}: no file can be made there", fix="name a file in a folder that exists")
    return whole
