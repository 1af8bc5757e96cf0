"""`--preflight`: the task `preflight` of whatever package has it, as a step before another task.

What the two agree on: the task takes `--gate stop|warn` and `--level`, runs once per node, keeps what it finds in
`<run>/preflight`, and every node ends as node 0 judges all of them. Any exit code but 0 stops the launch.
"""

from __future__ import annotations

from collections.abc import Mapping

from primus_core.config.option_defaults import in_words
from primus_core.config.system import PREFLIGHT, SystemConfig
from primus_core.contracts import schedulers
from primus_core.plan.plan import Step
from primus_core.plan.programs import RANK
from primus_core.plugins.catalogue import Catalogue
from primus_core.plugins.contracts import Task, TaskCall, TaskPlan
from primus_core.request.arguments import Parser, parse_segment
from primus_machine.errors import RequestError

__all__ = ["before", "settings"]

_WORDS: Mapping[str, tuple[str, ...]] = {
    "quick": ("--level=quick", "--gate=stop"),
    "perf": ("--level=perf", "--gate=stop"),
    "warn": ("--level=quick", "--gate=warn"),
}
"""Words for the task, by the option's value."""


def settings(task: Task, system: SystemConfig) -> tuple[str, ...]:
    """What `primus.yaml` says under `preflight:`, as words for the task.

    Raises:
        ConfigError: an unknown option, or a value that it does not take.
    """
    section = system.section(PREFLIGHT)
    return in_words(_parser(task), section) if section.data else ()


def before(planned: TaskPlan, chosen: str, catalogue: Catalogue, call: TaskCall) -> TaskPlan:
    """The plan of another task with preflight as its first step. `call`: where, and on what.

    Raises:
        RequestError: no package here has the task, or the nodes have no run directory in common.
    """
    if call.elsewhere and PREFLIGHT not in catalogue.names("tasks"):
        note = f"the task '{PREFLIGHT}' is not installed here: it is planned where the ranks start, and must be there"
        return planned._replace(notes=(*planned.notes, note))
    if call.distributed.nnodes > 1 and not (planned.place.joined or call.elsewhere):
        raise RequestError(
            f"--preflight with {call.distributed.nnodes} nodes that have no run directory in common",
            why="the nodes exchange their results there",
            fix=f"start all by one command (primus {schedulers.launch('N')} -- ...), "
            "or set PRIMUS_RUN_DIR to one shared folder on each",
        )
    task = catalogue.task((PREFLIGHT,))[0]
    words = (*settings(task, catalogue.system), *_WORDS[chosen])
    args = parse_segment(_parser(task), words)
    found = task.plan(call._replace(words=words, args=args, place=lambda *_: planned.place))
    command = (call.facts.python, "-m", RANK, found.worker.module, *found.worker.args)
    step = Step(PREFLIGHT, command, call.facts.cwd, kind="preflight")
    return planned._replace(
        prepare=(step, *planned.prepare),
        requires=(*found.requires, *planned.requires),
        reads=(*found.reads, *planned.reads),
    )


def _parser(task: Task) -> Parser:
    parser = Parser(prog=f"primus ... -- {PREFLIGHT}", segment="--preflight")
    task.add_arguments(parser)
    return parser
