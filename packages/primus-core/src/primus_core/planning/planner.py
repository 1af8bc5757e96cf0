"""Request + facts → plan. Pure: it reads configuration, and writes, starts and installs nothing."""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from primus_core import variables
from primus_core.config import submission
from primus_core.config.system import EXTRA, apply_defaults
from primus_core.contracts import launchers, schedulers
from primus_core.environment import resolve
from primus_core.environment.flag_lists import FLAG_LISTS, over
from primus_core.environment.nesting import parent_of
from primus_core.errors import Mistakes, RequestError
from primus_core.files import trust
from primus_core.hooks import scripts as script_files
from primus_core.hooks.scripts import Spoken
from primus_core.host import HostRoot
from primus_core.installed import packages
from primus_core.machine.facts import Facts, read
from primus_core.plan.plan import (
    EXPERIMENT,
    METRICS,
    SCHEMA,
    Distributed,
    Plan,
    RunPlace,
    Scope,
    Step,
    Variable,
    Worker,
)
from primus_core.plan.secret_values import values_in
from primus_core.planning import preflight_step
from primus_core.plugins.catalogue import Catalogue
from primus_core.plugins.contracts import OuterRuntime, Runtime, RuntimeCall, RuntimePlan, Task, TaskCall, TaskPlan
from primus_core.request.arguments import Parser, flags_of, parse_segment
from primus_core.request.request import Layer, Request, no_task
from primus_core.runs.rundir import place
from primus_core.secrets.redaction import redact_words, refuse_secrets

if TYPE_CHECKING:
    from primus_core.runs.replay import Replay

__all__ = ["Planned", "plan", "runtime_parser", "segment_name", "switches_of", "task_parser"]


class Planned(NamedTuple):
    """A plan, what it was made from, and the switches of the command line that are not part of it."""

    plan: Plan
    facts: Facts
    switches: argparse.Namespace
    """`dry_run`, `json`, `debug`, `assume_host` of the runtime; `check` and `force` of a replay."""
    replay: Replay | None = None
    reads: tuple[str, ...] = ()
    """The files that were read for it, and those that it needs: whoever plans it again must see them."""
    inputs: tuple[str, ...] = ()
    """Those of them that it was made from: whoever plans it again from the same gets the same."""
    hook_folders: tuple[str, ...] = ()
    """Where hooks were looked for."""
    writes: tuple[str, ...] = ()
    """The folders that it writes in, beside the run directory."""
    inner: Planned | None = None
    """Of an outer layer: what the layer inside would do here."""


def runtime_parser(runtime: Runtime | OuterRuntime, segment: str = "") -> Parser:
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
    parser.add_argument(
        "--assume-host", metavar="FILE", default="", help="plan for the machine of `primus env capture`; with --dry-run"
    )
    preflight_step.add_options(parser)
    runtime.add_arguments(parser)
    return parser


def task_parser(task: Task, name: str, segment: str = "") -> Parser:
    """The parser of the task's segment."""
    parser = Parser(prog=f"primus ... -- {name}", epilog=task.epilog, segment=segment)
    task.add_arguments(parser)
    return parser


def plan(
    request: Request,
    host: HostRoot,
    catalogue: Catalogue,
    command: tuple[str, ...],
    *,
    spoken: Spoken | None = None,
    first: Planned | None = None,
    elsewhere: bool = False,
    facts: Facts | None = None,
) -> Planned:
    """The plan for `request` on the machine that `host` reads, or that `facts` describe.

    With `spoken`, what hooks and patches of the `first` plan said, the plan for the same run with that. `elsewhere`:
    it will be planned again where it runs, with other packages.

    Raises:
        RequestError: anything about the request or its files is wrong.
        MachineError: a run that is to be replayed is incomplete or damaged.
    """
    return _Planning(request, host, catalogue, spoken or Spoken(), first, facts, elsewhere=elsewhere).planned(command)


# What stands for a part that has been refused, so that the others can be checked.
_UNKNOWN_PLACE = Distributed(tentative=True)
_UNKNOWN_TASK = TaskPlan(place=RunPlace("", "", ""), worker=Worker(""))


class _Planning:
    def __init__(
        self,
        request: Request,
        host: HostRoot,
        catalogue: Catalogue,
        spoken: Spoken,
        first: Planned | None,
        facts: Facts | None,
        *,
        elsewhere: bool,
    ) -> None:
        self.request, self.catalogue, self.spoken, self.first = request, catalogue, spoken, first
        self.elsewhere = elsewhere
        self.system = system = catalogue.system
        layer = _only_layer(request)
        self.runtime = catalogue.runtime(layer.runtime)
        self.parser = runtime_parser(self.runtime, segment_name(layer.segment, layer.runtime))
        apply_defaults(self.parser, system.section(layer.runtime))
        self.args = parse_segment(self.parser, layer.words)
        if not request.task:
            raise no_task((layer,), catalogue.names("tasks"))
        if self.args.assume_host:
            from primus_core.machine import capture

            host = capture.read(self.args.assume_host, host)
        self.facts = first.facts if first else facts or read(host)

    def planned(self, command: tuple[str, ...]) -> Planned:
        self.facts = self.facts._replace(environ=over(self.facts.environ, self.spoken.environment))
        if self.request.replay:
            return self.replayed(self.request.replay, "", command, switches_of(self.args, self.request, None))
        task, name, words = self.catalogue.task(self.request.task)
        if not (self.first and self.first.replay):  # the settings of a replay are those of its snapshot
            words = (*words, *self.spoken.words)
        refuse_secrets(words, "" if name == "train" else "export it for the task to read")  # first: errors quote
        words = (*preflight_step.settings(task, self.system), *words) if name == preflight_step.TASK else words
        sub = task_parser(task, name, segment_name(self.request.task_segment, name))
        task_args = parse_segment(sub, words, elsewhere=set(flags_of(self.parser)) - set(flags_of(sub)))
        if directory := getattr(task_args, "replay", ""):
            _refuse_settings(directory, task_args)
            return self.replayed(directory, name, command, switches_of(self.args, self.request, task_args))
        mistakes = Mistakes()
        place_in_job, task_plan = _UNKNOWN_PLACE, _UNKNOWN_TASK
        with mistakes:
            place_in_job = self.runtime.distributed(self.args, self.facts)
        typed = redact_words(command)
        call = TaskCall(words, task_args, self.facts, place_in_job, self.place, self.catalogue, self.elsewhere, typed)
        with mistakes:
            task_plan = task.plan(call)
        with mistakes:
            if chosen := self.preflight(name):
                task_plan = preflight_step.before(task_plan, chosen, self.catalogue, call)
        low: tuple[Variable, ...] = ()
        notes: tuple[str, ...] = ()
        scripts: tuple[Step, ...] = ()
        with mistakes:
            low, notes = self.profile(task_plan, place_in_job)
        with mistakes:
            scripts = self.ran() if self.first else self.scripts(task_plan, name, words)
        whole = replace(task_plan, environment=(*low, *task_plan.environment), notes=(*task_plan.notes, *notes))
        with mistakes:
            result = self.assemble(whole, name, task.scope, place_in_job, scripts)
        mistakes.refuse()
        switches = switches_of(self.args, self.request, task_args)
        return self.with_files(self.finished(result, command, switches), task_plan, scripts)

    def with_files(self, planned: Planned, task: TaskPlan, scripts: Sequence[Step]) -> Planned:
        """The plan with the files that it was made from, and those that it needs."""
        args, system = self.args, self.system
        named = [self.profile_file, *getattr(args, "env", [])]
        own = [layer.path for layer in system.layers if layer.document]
        files = [*own, *system.plugin_files, *system.model_files, system.profile, *task.reads, *named]
        inputs = self.there(files, (step.script for step in scripts))
        folders = self.there(self.folders(task.folder))
        needed = (requirement.name for requirement in task.requires if requirement.kind == "file")
        reads = dict.fromkeys(map(_whole, self.there(needed, folders, inputs)))
        return planned._replace(reads=tuple(reads), inputs=inputs, hook_folders=folders)

    def there(self, *paths: Iterable[str]) -> tuple[str, ...]:
        """Those of `paths` that exist, from the root on."""
        whole = (submission.absolute(path, self.facts.cwd) for some in paths for path in some if path)
        return tuple(dict.fromkeys(filter(os.path.exists, whole)))

    def place(self, workspace: str, exp_name: str) -> RunPlace:
        return self.first.plan.place if self.first else place(self.facts, workspace, exp_name)

    def finished(self, result: Plan, command: tuple[str, ...], switches: argparse.Namespace) -> Planned:
        secrets = values_in(result, self.facts.environ)
        result = replace(
            result,
            command=redact_words(command, secrets),
            steps=tuple(replace(s, argv=redact_words(s.argv, secrets)) if s.script else s for s in result.steps),
        )
        writes = tuple(needed.name for needed in result.requires if needed.kind == "folder")
        return Planned(result, self.facts, switches, writes=writes)

    def replayed(self, directory: str, name: str, command: tuple[str, ...], switches: argparse.Namespace) -> Planned:
        """The plan of a saved run, for here."""
        from primus_core.environment.of_machine import of_network
        from primus_core.runs import replay, saved

        if self.first and self.first.replay:
            kept = self.first.replay
        else:
            kept = replay.prepare(
                saved.load(os.path.realpath(os.path.join(self.facts.cwd, directory))), self.facts, self.place
            )
        if name and kept.plan.task != name:
            import shlex

            raise RequestError(
                f"{directory} is a run of '{kept.plan.task}', not of '{name}'",
                fix=f"primus replay {shlex.quote(directory)}",
            )
        facts, self.facts = self.facts, self.facts._replace(environ=kept.environ)
        place_in_job = self.runtime.distributed(self.args, self.facts)
        low = of_network(self.facts, place_in_job, self.facts.environ)
        task_plan = replace(kept.task, environment=low.variables, notes=(*kept.task.notes, *low.notes))
        if chosen := self.preflight(kept.plan.task, kept):
            call = TaskCall((), self.args, self.facts, place_in_job, self.place, self.catalogue, self.elsewhere)
            task_plan = preflight_step.before(task_plan, chosen, self.catalogue, call)
        result = self.assemble(task_plan, kept.plan.task, kept.plan.scope, place_in_job, kept.scripts, kept)
        self.facts = facts
        planned = self.with_files(self.finished(result, command, switches), task_plan, kept.scripts)
        return planned._replace(replay=kept, reads=(kept.saved.directory, *planned.reads))

    def profile(self, task: TaskPlan, place_in_job: Distributed) -> tuple[tuple[Variable, ...], tuple[str, ...]]:
        """The variables that the GPU's profile and the network ask for, weakest first, and what to know of them."""
        if not self.facts.host.is_known:
            return (), ("the nodes are not known yet: what their GPUs and networks need is planned on each of them",)
        from primus_core.environment.of_machine import of_machine

        if self.profile_file:
            self.trust.require(self.profile_file, "the profile")
        options: tuple[Variable, ...] = ()
        with Mistakes():  # `environment` says them
            options = resolve.from_options(getattr(self.args, "env", []), self.facts.environ)
        found = of_machine(
            self.facts,
            place_in_job,
            framework=task.framework,
            profile_file=self.profile_file or self.system.profile,
            environ={
                **{v.name: v.value for v in task.environment},
                **self.facts.environ,
                **{v.name: v.value for v in options},
            },
        )
        return found.variables, found.notes

    def ran(self) -> tuple[Step, ...]:
        """The scripts that have spoken: as they ran, whatever they said and did to the folders of hooks."""
        return tuple(step for step in self.first.plan.steps if step.script) if self.first else ()

    def scripts(self, task: TaskPlan, name: str, words: tuple[str, ...]) -> tuple[Step, ...]:
        """Hooks and patches as steps. They get the task's words as arguments."""
        cwd = self.facts.cwd
        action = [word for word in words[:1] if not word.startswith("-")]
        patches = [] if self.in_hook else [*self.system.patches]
        patches += [submission.path(path, self.facts.environ) for path in getattr(self.args, "patch", [])]
        found = script_files.found(self.folders(task.folder), patches, (*name.split(), *action), cwd, self.trust)
        return tuple(
            script_files.step(
                kind,
                path,
                (*name.split(), *words),
                python=self.facts.python,
                cwd=cwd,
                timeout_s=self.system.hook_timeout_s,
                alone=bool(self.trust.doubt(os.path.dirname(path))),
            )
            for kind, path in found
        )

    @property
    def trust(self) -> trust.Trust:
        """What the person believes, whose environment no option and no replayed run has changed."""
        return trust.of(self.facts.host.environ)

    @property
    def in_hook(self) -> bool:
        """Whether a hook starts this run, which then runs none of them: it would start itself without end."""
        return variables.IN_HOOK in self.facts.environ

    def folders(self, beside: str) -> list[str]:
        """Where hooks are looked for."""
        return script_files.hook_folders(self.facts, self.system, beside, getattr(self.args, "hooks", []))

    @property
    def profile_file(self) -> str:
        """What `--profile` names."""
        named = str(getattr(self.args, "profile", ""))
        return submission.path(named, self.facts.environ) if named else ""

    def assemble(
        self,
        task: TaskPlan,
        name: str,
        scope: Scope,
        place_in_job: Distributed,
        scripts: tuple[Step, ...],
        kept: Replay | None = None,
    ) -> Plan:
        alone = not getattr(self.args, "single", False) and launchers.find(task.worker.launcher).one_per_node
        place_in_job = replace(place_in_job, one_per_node=alone)
        planned = self.runtime.plan(RuntimeCall(self.args, self.facts, place_in_job, task, scope))
        result = Plan(
            schema=SCHEMA,
            primus_version=packages.version_of("primus-core"),
            command=(),
            runtime=self.runtime.name,
            task=name,
            place=task.place,
            distributed=place_in_job,
            environment=self.environment(task, planned, kept),
            steps=(*scripts, *planned.steps),
            files=task.files,
            requires=tuple(dict.fromkeys((*task.requires, *planned.requires))),
            config=task.config,
            notes=(*task.notes, *self.modules_here()),
            next_steps=task.next_steps,
            metrics_rank=task.metrics_rank,
            python=self.facts.python,
            worker=task.worker,
            scope=scope,
            framework=task.framework,
            model=task.model,
            gpu_model=self.facts.gpu_model,
            preflight=self.preflight(name, kept),
            max_restarts=self.max_restarts(place_in_job),
            continues=task.continues,
            loads=self.loaded(task, kept),
            started_by=parent_of(self.facts.environ),
        )
        return self.with_hooks(_with_options(result, self.args, self.facts), kept)

    def modules_here(self) -> tuple[str, ...]:
        """What a person must know whose own modules lie where others can put some, too."""
        cwd = self.facts.cwd
        found = resolve.of_python(cwd, self.facts.host.environ)
        has_modules = found and any(name.endswith(".py") for name in self.facts.host.names(cwd))
        return tuple(variable.why for variable in found) if has_modules else ()

    def loaded(self, task: TaskPlan, kept: Replay | None) -> tuple[str, ...]:
        """What the worker loads. A pickle runs code, so it must be trusted wherever it can be seen."""
        if kept and kept.saved.doubt(self.trust):  # before it starts, the person is asked about all of it
            return task.loads
        mistakes = Mistakes()
        for path in task.loads:
            with mistakes:
                self.trust.require_loadable(path)
        mistakes.refuse()
        return task.loads

    def environment(self, task: TaskPlan, planned: RuntimePlan, kept: Replay | None) -> tuple[Variable, ...]:
        # A restored list of flags is the whole of it: the person's own flags would come on top.
        left = {*kept.unset, *(v.name for v in kept.restored if v.name in FLAG_LISTS)} if kept else ()
        caller = {k: v for k, v in self.facts.host.environ.items() if k not in left}
        here = {**self.facts.environ, **(self.facts.host.environ if kept else {})}  # `--env NAME`: the person's value
        own = (
            Variable(variables.RUN_DIR, task.place.directory, "primus", "where this run keeps its files"),
            Variable(variables.RUN_ID, task.place.run_id, "primus", "names the run"),
            Variable(variables.PARENT, task.place.directory, "primus", "the parent of what a rank or a hook starts"),
            Variable(variables.METRICS_FILE, f"{task.place.directory}/{METRICS}", "primus", "step metrics go here"),
            *self.config_file(),
            *resolve.of_python(self.facts.cwd, self.facts.host.environ),
        )
        return resolve.resolve(
            caller,
            low=task.environment,
            forced=(*planned.environment, *own),
            hooks=(*(kept.restored if kept else ()), *self.spoken.environment),
            options=resolve.from_options(getattr(self.args, "env", []), here),
        )

    def config_file(self) -> tuple[Variable, ...]:
        """What `--config` names, for the processes of the run."""
        last = self.system.layers[-1]
        why = "the last file of the system config"
        return (Variable(variables.CONFIG, last.path, "primus", why),) if last.name == EXTRA else ()

    def with_hooks(self, result: Plan, kept: Replay | None) -> Plan:
        """The plan with the plugins that are told of the run, and what it has from the run that it replays."""
        plugins = () if self.in_hook else kept.hook_plugins if kept else self.catalogue.hook_plugins()
        if plugins:  # reading their limit costs
            result = replace(result, hook_plugins=plugins, hook_timeout_s=self.system.event_timeout_s)
        return replace(result, unset=kept.unset, parent=kept.saved.directory) if kept else result

    def preflight(self, name: str, kept: Replay | None = None) -> str:
        """How nodes are looked at first: as the options say, else as the run that is replayed; empty: not at all."""
        chosen = str(getattr(self.args, "preflight", "")) or (kept.plan.preflight if kept else "")
        if name == preflight_step.TASK and chosen not in (preflight_step.NONE, self.parser.get_default("preflight")):
            raise RequestError("--preflight before preflight", why="it is the same task", fix="leave the option out")
        return "" if chosen == preflight_step.NONE or name == preflight_step.TASK else chosen

    def max_restarts(self, place_in_job: Distributed) -> int:
        """How often this node starts its ranks again in vain. Those of several nodes start together, or not at all."""
        if self.facts.environ.get(variables.RESTARTED):
            return 0
        asked = int(getattr(self.args, "max_restarts", 0))
        launch = schedulers.launch(place_in_job.nnodes)
        if asked and place_in_job.nnodes > 1 and not self.elsewhere:
            raise RequestError(
                f"--max-restarts {asked} with {place_in_job.nnodes} nodes",
                why="ranks of one node cannot start again without those of the others",
                fix=f"start all nodes by one command: primus {launch} -- direct --max-restarts {asked} -- ...",
            )
        return asked


def _whole(path: str) -> str:
    """`path` without `..`: behind a link, it is not what its letters say."""
    return os.path.realpath(path) if ".." in path.split("/") else path


def _with_options(result: Plan, args: argparse.Namespace, facts: Facts) -> Plan:
    """The plan with the runtime's options that say how to carry it out, those that this runtime has."""
    worker = result.worker
    return replace(
        result,
        worker=replace(worker, launcher="single") if worker and getattr(args, "single", False) else worker,
        log_file=_log_file(getattr(args, "log_file", ""), facts),
        log_limit=getattr(args, "log_limit", result.log_limit),
        grace_period_s=getattr(args, "grace_period", result.grace_period_s),
        hang_timeout_s=getattr(args, "hang_timeout", result.hang_timeout_s),
    )


def _refuse_settings(directory: str, task_args: argparse.Namespace) -> None:
    if getattr(task_args, "config", "") or getattr(task_args, "overrides", []):
        saved = f"$(primus runs path {shlex.quote(directory)})/{EXPERIMENT}"
        raise RequestError(
            "a replay takes no settings: it has those of its run",
            fix=f"to change some: primus direct -- train {task_args.stage} --config {saved} key=value",
        )
    if getattr(task_args, "always", False) or getattr(task_args, "anew", False):
        raise RequestError("--continue and --new do not go with --replay", why="a replay starts where its run did")


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


def segment_name(number: int, name: str) -> str:
    """A segment as messages call it."""
    return f"segment {number} ({name})"


def _only_layer(request: Request) -> Layer:
    if len(request.layers) > 1:
        first, second = request.layers[0].runtime, request.layers[1].runtime
        raise RequestError(f"segment 2: '{second}' cannot run inside '{first}'", fix="drop one of the two")
    return request.layers[0]


def _log_file(path: str, facts: Facts) -> str:
    if not path:
        return ""
    whole = os.path.normpath(os.path.join(facts.cwd, path))
    if not os.path.isdir(os.path.dirname(whole)) or os.path.isdir(whole):
        raise RequestError(f"--log-file {path}: no file can be made there", fix="name a file in a folder that exists")
    return whole
