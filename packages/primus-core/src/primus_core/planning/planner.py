"""Request + facts → plan. Pure: it reads configuration, and writes, starts and installs nothing."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from primus_core import variables
from primus_core.config import submission
from primus_core.config.system import EXTRA, PREFLIGHT, apply_defaults
from primus_core.contracts import launchers, schedulers
from primus_core.contracts.launchers import SINGLE
from primus_core.environment import resolve
from primus_core.environment.flag_lists import FLAG_LISTS, applied
from primus_core.environment.nesting import parent_of
from primus_core.hooks.folders import hook_folders
from primus_core.installed import joined
from primus_core.plan.plan import METRICS, SCHEMA, Distributed, Plan, RunPlace, Scope, Step, Variable, Worker
from primus_core.plan.secret_values import values_in
from primus_core.planning.options import (
    NO_PREFLIGHT,
    max_restarts,
    only_layer,
    runtime_parser,
    segment_name,
    switches_of,
    task_parser,
    with_options,
)
from primus_core.planning.planned import Planned
from primus_core.plugins.catalogue import Catalogue
from primus_core.plugins.contracts import RuntimeCall, RuntimePlan, Task, TaskCall, TaskPlan
from primus_core.request.arguments import flags_of, parse_segment
from primus_core.request.request import Request, no_task
from primus_core.runs.rundir import apart, place
from primus_machine import packages
from primus_machine.captures.assumed import assume_host
from primus_machine.errors import Mistakes, RequestError, expect
from primus_machine.facts import Facts
from primus_machine.files import trust
from primus_machine.host import HostRoot
from primus_machine.secrets.redaction import redact_words, refuse_secrets
from primus_machine.variables import RUN_DIR

if TYPE_CHECKING:
    from primus_core.hooks.script_output import ScriptOutput
    from primus_core.replay.prepare import Replay

__all__ = ["Planning", "plan"]


def plan(
    request: Request,
    host: HostRoot,
    catalogue: Catalogue,
    command: tuple[str, ...],
    *,
    printed: ScriptOutput | None = None,
    first: Planned | None = None,
    elsewhere: bool = False,
    facts: Facts | None = None,
) -> Planned:
    """The plan for `request` on the machine that `host` reads, or that `facts` describe.

    With `printed`, the output of hooks and patches of the `first` plan, it is for the same run with that output.
    `elsewhere`: it will be planned again where it runs, with other packages.

    Raises:
        RequestError: anything about the request or its files is wrong.
        MachineError: a run that is to be replayed is incomplete or damaged.
    """
    return Planning(request, host, catalogue, printed, first, facts, elsewhere=elsewhere).planned(command)


# What stands for a part that has been refused, so that the others can be checked.
_UNKNOWN_PLACE = Distributed(tentative=True)
_UNKNOWN_TASK = TaskPlan(place=RunPlace("", "", ""), worker=Worker(""))


class Planning:
    """One request that is being planned: its runtime's options, the facts, the system config."""

    def __init__(
        self,
        request: Request,
        host: HostRoot,
        catalogue: Catalogue,
        printed: ScriptOutput | None,
        first: Planned | None,
        facts: Facts | None,
        *,
        elsewhere: bool,
    ) -> None:
        self.request, self.catalogue, self.first = request, catalogue, first
        self.printed = printed.environment if printed else ()
        self.printed_words = printed.words if printed else ()
        self.elsewhere = elsewhere
        self.system = system = catalogue.system
        layer = only_layer(request)
        self.runtime = catalogue.runtime(layer.runtime)
        self.parser = runtime_parser(self.runtime, segment_name(layer.segment, layer.runtime))
        apply_defaults(self.parser, system.section(layer.runtime))
        self.args = parse_segment(self.parser, layer.words)
        if not request.task:
            raise no_task((layer,), catalogue.names("tasks"))
        self.facts = first.facts if first else facts or assume_host(self.args.assume_host, host)

    def planned(self, command: tuple[str, ...]) -> Planned:
        self.facts = self.facts._replace(environ=applied(self.facts.environ, self.printed))
        if self.request.replay:
            return self.replayed(self.request.replay, "", command)
        task, name, words = self.catalogue.task(self.request.task)
        if not (self.first and self.first.replay):  # the settings of a replay are those of its snapshot
            words = (*words, *self.printed_words)
        refuse_secrets(words, is_setting=name == "train")  # first: errors quote
        words = (*self.settings_of(task, name), *words)
        sub = task_parser(task, name, segment_name(self.request.task_segment, name))
        task_args = parse_segment(sub, words, elsewhere=set(flags_of(self.parser)) - set(flags_of(sub)))
        if directory := getattr(task_args, "replay", ""):
            return self.replayed(directory, name, command, task_args)
        mistakes = Mistakes()
        place_in_job, task_plan = _UNKNOWN_PLACE, _UNKNOWN_TASK
        with mistakes:
            place_in_job = self.runtime.distributed(self.args, self.facts)
        typed = redact_words(command)
        call = TaskCall(words, task_args, self.facts, place_in_job, self.place, self.catalogue, self.elsewhere, typed)
        with mistakes:
            task_plan = expect(task.plan(call), TaskPlan, f"the task '{name}'")
        with mistakes:
            task_plan = self.with_preflight(task_plan, self.preflight(name), call)
        low: tuple[Variable, ...] = ()
        notes: tuple[str, ...] = ()
        scripts: tuple[Step, ...] = ()
        with mistakes:
            low, notes = self.profile(task_plan, place_in_job)
        with mistakes:
            scripts = self.ran() if self.first else self.scripts(task_plan, name, words)
        whole = task_plan._replace(environment=(*low, *task_plan.environment), notes=(*task_plan.notes, *notes))
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
        return planned._replace(reads=tuple(reads), inputs=inputs, hook_folders=folders, takes_over=task.takes_over)

    def there(self, *paths: Iterable[str]) -> tuple[str, ...]:
        """Those of `paths` that exist, from the root on."""
        whole = (submission.absolute(path, self.facts.cwd) for some in paths for path in some if path)
        return tuple(dict.fromkeys(filter(os.path.exists, whole)))

    def place(self, workspace: str, exp_name: str) -> RunPlace:
        if self.first:
            return self.first.plan.place
        return place(self.facts, workspace or self.system.workspace or "output", exp_name)

    def finished(self, result: Plan, command: tuple[str, ...], switches: argparse.Namespace) -> Planned:
        secrets = values_in(result, self.facts.environ)
        result = result._replace(
            command=redact_words(command, secrets),
            steps=tuple(s._replace(argv=redact_words(s.argv, secrets)) if s.script else s for s in result.steps),
        )
        writes = tuple(needed.name for needed in result.requires if needed.kind == "folder")
        return Planned(result, self.facts, switches, writes=writes)

    def replayed(
        self, directory: str, name: str, command: tuple[str, ...], task_args: argparse.Namespace | None = None
    ) -> Planned:
        """The plan of a saved run, for here."""
        from primus_core.planning import replayed

        replayed.refuse_settings(directory, task_args)
        return replayed.plan(self, directory, name, command, switches_of(self.args, self.request, task_args))

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
        """The scripts that have run: as they ran, whatever they printed and did to the folders of hooks."""
        return tuple(step for step in self.first.plan.steps if step.script) if self.first else ()

    def scripts(self, task: TaskPlan, name: str, words: tuple[str, ...]) -> tuple[Step, ...]:
        """Hooks and patches as steps. They get the task's words as arguments."""
        cwd = self.facts.cwd
        action = [word for word in words[:1] if not word.startswith("-")]
        patches = [] if self.in_hook else [*self.system.patches]
        patches += [submission.path(path, self.facts.environ) for path in getattr(self.args, "patch", [])]
        folders = self.folders(task.folder)
        if not (folders or patches):  # as for most launches
            return ()
        from primus_core.hooks import scripts as script_files

        found = script_files.found(folders, patches, (*name.split(), *action), cwd, self.trust)
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
        return hook_folders(self.facts, self.system, beside, getattr(self.args, "hooks", []))

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
        place_in_job = place_in_job._replace(one_per_node=alone)
        call = RuntimeCall(self.args, self.facts, place_in_job, task, scope)
        planned = expect(self.runtime.plan(call), RuntimePlan, f"the runtime '{self.runtime.name}'")
        if getattr(self.args, "single", False) or task.worker.launcher == SINGLE:
            place_in_job = place_in_job._replace(gpus_per_node=1, once=scope == "run")
        beside = resolve.modules_beside(self.facts.host, self.facts.cwd)
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
            notes=(*task.notes, *apart(task.place, place_in_job), *beside, *schedulers.notes(self.facts)),
            next_steps=task.next_steps,
            metrics_rank=task.metrics_rank,
            python=self.facts.python,
            worker=task.worker,
            scope=scope,
            framework=task.framework,
            model=task.model,
            gpu_model=self.facts.gpu_model,
            preflight=self.preflight(name, kept),
            max_restarts=max_restarts(self.args, self.facts, place_in_job.nnodes, elsewhere=self.elsewhere),
            continues=task.continues,
            loads=self.loaded(task, kept),
            after_failure=() if task.place.outer or place_in_job.node_rank else self.after_failure(task.place),
            started_by=parent_of(self.facts.environ),
        )
        return self.with_hooks(with_options(result, self.args, self.facts), kept)

    def after_failure(self, place: RunPlace) -> tuple[Step, ...]:
        """What packages run once the run has failed, in the layer that keeps its record."""
        return tuple(
            Step(
                f"{entry.name} of {entry.source}",
                (self.facts.python, "-m", entry.module, place.directory),
                self.facts.cwd,
                timeout_s=self.system.event_timeout_s,
            )
            for entry in joined.of_group("primus.after_failure")
        )

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
        here = {**self.facts.environ, **(self.facts.host.environ if kept else {})}  # `--env NAME`: the person's value
        given = getattr(self.args, "env", [])
        below = [option for option in given if kept and hasattr(option, "where")]  # of a file: the run's own wins
        own = (
            Variable(RUN_DIR, task.place.directory, "primus", "where this run keeps its files"),
            Variable(variables.RUN_ID, task.place.run_id, "primus", "names the run"),
            Variable(variables.PARENT, task.place.directory, "primus", "the parent of the runs that this run starts"),
            Variable(variables.METRICS_FILE, f"{task.place.directory}/{METRICS}", "primus", "step metrics go here"),
            *self.config_file(),
            *resolve.of_python(self.facts.cwd, self.facts.host.environ),
        )
        place = planned.environment
        if kept and "GPUS_PER_NODE" not in self.facts.host.environ:  # nobody typed it: the snapshot has the number
            place = tuple(v._replace(origin="replay") if v.name == "GPUS_PER_NODE" else v for v in place)
        return resolve.resolve(
            {name: value for name, value in self.facts.host.environ.items() if name not in left},
            low=(*task.environment, *self.log_level()),
            forced=(*place, *own),
            hooks=(*resolve.from_options(below, here), *(kept.restored if kept else ()), *self.printed),
            options=resolve.from_options([o for o in given if not (kept and hasattr(o, "where"))], here),
        )

    def log_level(self) -> tuple[Variable, ...]:
        """What `--debug` means for the loggers of ranks and hooks."""
        wanted = self.args.debug or self.request.debug
        return (Variable(variables.LOG_LEVEL, "debug", "--debug", "loggers write debug messages"),) if wanted else ()

    def config_file(self) -> tuple[Variable, ...]:
        """What `--config` names, for the processes of the run."""
        last = self.system.layers[-1]
        why = "the last file of the system config"
        return (Variable(variables.CONFIG, last.path, "primus", why),) if last.name == EXTRA else ()

    def with_hooks(self, result: Plan, kept: Replay | None) -> Plan:
        """The plan with its plugins of Python hooks, and what it has from the run that it replays."""
        plugins = () if self.in_hook else kept.hook_plugins if kept else self.catalogue.hook_plugins()
        if plugins:  # reading their limit costs
            result = result._replace(hook_plugins=plugins, hook_timeout_s=self.system.event_timeout_s)
        return result._replace(unset=kept.unset, parent=kept.saved.directory) if kept else result

    def settings_of(self, task: Task, name: str) -> tuple[str, ...]:
        """What `primus.yaml` says for the task, in its words: only preflight has a section there."""
        if name != PREFLIGHT:
            return ()
        from primus_core.planning import preflight_step

        return preflight_step.settings(task, self.system)

    def with_preflight(self, planned: TaskPlan, chosen: str, call: TaskCall) -> TaskPlan:
        """The plan of the task, behind a look at the nodes if one is `chosen`."""
        if not chosen:
            return planned
        from primus_core.planning import preflight_step

        return preflight_step.before(planned, chosen, self.catalogue, call)

    def preflight(self, name: str, kept: Replay | None = None) -> str:
        """How nodes are looked at first: as the options say, else as the run that is replayed; empty: not at all."""
        chosen = str(getattr(self.args, "preflight", "")) or (kept.plan.preflight if kept else "")
        if name == PREFLIGHT and chosen not in (NO_PREFLIGHT, self.parser.get_default("preflight")):
            raise RequestError("--preflight before preflight", why="it is the same task", fix="leave the option out")
        return "" if chosen == NO_PREFLIGHT or name == PREFLIGHT else chosen


def _whole(path: str) -> str:
    """`path` without `..`: behind a link, it is not what its letters say."""
    return os.path.realpath(path) if ".." in path.split("/") else path
