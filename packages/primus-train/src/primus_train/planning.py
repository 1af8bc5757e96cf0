"""From an experiment to the plan of a run: reads it, merges its settings, lets the backend translate them."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from primus_core.environment import resolve as environment
from primus_core.errors import ConfigError, MachineError, Mistakes, RequestError
from primus_core.installed import homes
from primus_core.plan.plan import BACKEND_CONFIG, EXPERIMENT, PlannedFile, Requirement, RunPlace, Variable, Worker
from primus_core.plugins.contracts import TaskCall, TaskPlan
from primus_core.request import former
from primus_machine.errors import expect
from primus_train import continuation, host_memory, modes, profiling, secret_settings
from primus_train.backend import Backend, BackendCall, BackendPlan, load_backend, missing_backend
from primus_train.failed_loads import FailedLoads
from primus_train.read_variables import ReadVariables
from primus_train.which_run import CONTINUE, FROM, AskedRun, LinkedPaths

if TYPE_CHECKING:
    from primus_core.config.document import Document
    from primus_train.continuation import Earlier
    from primus_train.experiment import Experiment, Module

__all__ = ["Planning", "Resolved", "named", "packaged_folders"]


class Resolved(NamedTuple):
    """An experiment as a launch would have it."""

    document: Document
    experiment: Experiment
    module: str
    settings: Document
    """Of the module, merged, with their places."""
    planned: BackendPlan
    task: TaskPlan


class Planning:
    """One call. What is wrong goes to `mistakes`, as far as the rest can be checked without it."""

    def __init__(self, call: TaskCall, mistakes: Mistakes) -> None:
        from primus_core.config import files
        from primus_train import experiment as experiments  # YAML and pydantic's engine load for this task only
        from primus_train import overrides

        self.call, self.args, self.mistakes, self.presets = call, call.args, mistakes, ""
        config = self.args.config
        config = config if config.startswith(files.TEMPLATE) else call.file(config)
        self.folder = "." if config.startswith(files.TEMPLATE) else os.path.dirname(config) or "."
        environ = call.facts.environ
        if not (config.startswith(files.TEMPLATE) or os.path.exists(config)):
            from primus_train.templates import similar

            raise similar.missing_file(self.args.config, call.command, environ)
        self.environ = ReadVariables(environ)
        self.command_line = overrides.parse(self.args.overrides, self.environ, mistakes)
        self.document = experiments.read(config, self.environ, mistakes=mistakes)
        self.catalogue = call.catalogue
        self._adopt()
        self._shorten_command_line()
        self.experiment = self._parsed()
        self.document = experiments.as_meant(self.document) if mistakes.found else self.document
        self.module = experiments.select(self.experiment, self.args.stage, self.document)
        self._name_model()

    def _shorten_command_line(self) -> None:
        """`modules.pre_trainer.overrides.training.steps=1` and `exp_name=x` mean what they say, too."""
        from primus_core.config.document import Document
        from primus_train.overrides import TOP_LEVEL

        given = {key: self.command_line.data.pop(key) for key in TOP_LEVEL if key in self.command_line.data}
        # `exp_name=42` is a name.
        top = {key: str(value) if type(value) in (int, float) else value for key, value in given.items()}
        whole = {"modules": self.command_line.data.pop("modules")} if "modules" in self.command_line.data else {}
        marks = self.command_line.marks
        self.document = Document(
            {**top, **whole}, {k: m for k, m in marks.items() if k[0] in (*top, *whole)}
        ).merged_onto(self.document)

    def _name_model(self) -> None:
        """`model=NAME` is that model, instead of the experiment's."""
        from primus_core.config.document import Document

        if not isinstance(self.command_line.data.get("model"), str):
            return
        path = ("modules", self.module, "model")
        name = self.command_line.data.pop("model")
        own = (self.document.data["modules"][self.module].get("overrides") or {}).get("model")
        if isinstance(own, Mapping) and "family" in own:
            framework = self.experiment.modules[self.module].framework
            self.mistakes.add(
                ConfigError(
                    f"the experiment has a model of its own, beside model={name}",
                    where=self.document.where(("modules", self.module, "overrides", "model")),
                    why=f"its settings would replace those of {name}: {', '.join(own)}",
                    fix="remove them, or write an experiment of that model:\n"
                    f"primus config new {name} --backend {framework} --gpu MI300X -o {name}.yaml",
                )
            )
            self.mistakes.refuse()  # others would follow from it
        named = {"modules": {self.module: {"model": name}}}
        mark = self.command_line.where(("model",))
        self.document = Document(named, {path: mark}).merged_onto(self.document)
        self.experiment = self._parsed()

    def _parsed(self) -> Experiment:
        """Return the experiment, in the site's workspace where it names none."""
        from primus_train import experiment as experiments

        found = experiments.parse(self.document, self.mistakes)
        site = self.catalogue.system.workspace
        return replace(found, workspace=site) if site and "workspace" not in self.document.data else found

    def plan(self) -> TaskPlan:
        framework = self.experiment.modules[self.module].framework
        if self.call.elsewhere and framework not in self.catalogue.names("backends"):
            return self._elsewhere(self.experiment, framework)
        task = self.resolved().task
        return modes.changed(self._training(task), self.call, task)

    def written(self) -> Document:
        return self.command_line.below(("modules", self.module, "overrides")).merged_onto(self.document)

    def resolved(self) -> Resolved:
        from primus_core.config.document import Document
        from primus_train import experiment as experiments
        from primus_train import paths
        from primus_train.translated import Translated

        experiment, module = self.experiment, self.module
        backend = self._backend(experiment.modules[module].framework, module)
        self.presets = backend.presets()
        place = self._place()
        self.command_line = profiling.added(self.command_line, backend, self.args, place.directory)
        merged = experiments.merged(
            self.document,
            module,
            folder=self.presets,
            environ=self.environ,
            beside=self.folder,
            command_line=self.command_line,
            models=Translated(backend, self.catalogue.system.model_files),
            mistakes=self.mistakes,
        )
        kinds = backend.paths() if hasattr(backend, "paths") else {}
        merged = paths.anchored(merged, kinds, self.call.facts.cwd, packaged_folders(self.presets))
        public = secret_settings.refuse(merged.data, (), merged, self.mistakes)
        host = self.call.facts.host
        public = LinkedPaths(place, host.cwd()).in_settings(public) if host.is_here else public
        settings, refused = Document(public, merged.marks, merged.files).split_refused()
        environ = self._environment()
        which = AskedRun.of(self.args, place, host)
        failed = FailedLoads(lambda: _experiment_text(experiment, module, settings.data))
        earlier = continuation.Earlier(place, self.call.facts, self.call.distributed, which, failed)
        with self.mistakes:
            call = BackendCall(
                self.args.stage,
                settings.data,
                settings,
                facts=self.call.facts,
                distributed=self.call.distributed,
                place=place,
                previous=earlier.files,
                failed=earlier.failure,
                step=which.step,
                weights_only=which.option == FROM,
                on_non_finite=experiment.on_non_finite,
                elsewhere=self.call.elsewhere,
                refused=refused,
            )
            call.require_devices()
            framework = experiment.modules[module].framework
            planned = expect(backend.resolve(call), BackendPlan, f"the backend '{framework}'")
            profiling.refuse_late(profiling.asked_of(self.args), planned.config)
        self.mistakes.refuse()
        planned = replace(planned, notes=(*planned.notes, *experiments.left_out(experiment, module)))
        notes = self._continuation(earlier, planned, settings)
        task = self._task_plan(experiment, module, settings, place, replace(planned, notes=notes), environ)
        return Resolved(self.document, experiment, module, settings, planned, task)

    def _training(self, task: TaskPlan) -> modes.Training:
        given = {variable.name: variable.value for variable in task.environment if variable.origin == "experiment"}
        where, node = os.path.dirname(task.place.directory), self.call.distributed.node_rank
        model = named(self.experiment, self.experiment.modules[self.module])
        environ = {**given, **self.call.facts.environ, **modes.asked_by(self.args)}
        return modes.Training(task.framework, model, where, environ, node)

    def _place(self) -> RunPlace:
        try:
            return self.call.place(self.experiment.workspace, self.experiment.exp_name)
        except RequestError as error:
            where = self.document.where(("exp_name",))
            self.mistakes.add(ConfigError(error.what, where=where, why=error.why, fix=error.fix))
        return RunPlace("unnamed", os.path.join(self.call.facts.cwd, "unnamed"), "")

    def _environment(self) -> tuple[Variable, ...]:
        with self.mistakes:
            return environment.of_experiment(
                self.experiment.env, self.call.facts.environ, lambda name: self.document.where(("env", name))
            )
        return ()

    def _continuation(self, earlier: Earlier, planned: BackendPlan, settings: Document) -> tuple[str, ...]:
        """The plan's notes, if it continues what may be continued, or nothing."""
        earlier.refuse_used_directory()
        config, place, option = planned.config, earlier.place, earlier.which.option
        start = continuation.Start(
            *(config, place.directory, planned.changeable, planned.defaults, settings),
            *(earlier.facts.host.is_known, planned.fixed, earlier.distributed.nnodes),
        )
        if planned.continues:
            continuation.require_whole(planned.continues)
        elif option in (CONTINUE, FROM) and not planned.starts_from:
            raise earlier.nothing_to_continue(self.experiment.modules[self.module].framework)
        if option == FROM:
            return planned.notes
        if option == CONTINUE:
            found = continuation.changes(planned.continues, start)
            continuation.refuse_fixed(planned.continues, found)
            return (*planned.notes, *earlier.notes, *(f"although {one}" for one in found))
        if planned.continues:
            continuation.refuse_changes(planned.continues, start)
        else:
            earlier.refuse_a_second(start)
            earlier.tell_of_a_fresh_start()
        return (*planned.notes, *earlier.notes)

    def _elsewhere(self, experiment: Experiment, framework: str) -> TaskPlan:
        """What is known where the backend is missing: it will be planned again where the run is."""
        cache = os.path.join(self.call.facts.cwd, environment.cache(self.call.facts.environ))
        return TaskPlan(
            place=self.call.place(experiment.workspace, experiment.exp_name),
            worker=Worker(""),
            notes=(f"the backend {framework} is not installed here: the settings are checked inside",),
            requires=(Requirement("folder", cache, "export PRIMUS_CACHE"),),
            environment=self.environ.variables(),
            framework=framework,
            folder=self.folder,
            reads=self._reads(),
        )

    def _reads(self, settings: Document | None = None) -> tuple[str, ...]:
        """The files of the experiment."""
        inside = packaged_folders(self.presets)
        files = self.document.files + (settings.files if settings else ())
        return tuple(dict.fromkeys(path for path in files if not path.startswith(inside)))

    def _adopt(self) -> None:
        """A file in a framework's own form becomes an experiment, if an installed backend knows that form."""
        from primus_core.config.document import Document

        if "modules" in self.document.data:
            return
        for name in self.catalogue.names("backends"):
            try:
                backend = load_backend(self.catalogue, name)
            except MachineError:  # a broken package of others is no reason to refuse a file that is not its own
                continue
            if adopted := backend.adopt(self.document.data):
                prefix = ("modules", "pre_trainer", "overrides")
                marks = {prefix + path: mark for path, mark in self.document.marks.items()}
                self.document = Document(dict(adopted), {**marks, (): self.document.where(())}, self.document.files)
                return
        for name in {*homes.names("backends")} - {*self.catalogue.names("backends")}:
            form = former.word_set(f"form {name}")
            if form and form <= {*self.document.data}:
                what = f"the file is in the form of {name}, which is not installed"
                fix = homes.how_to_install(str(homes.home_of("backends", name)))
                raise MachineError(f"{self.document.where(()).partition(':')[0]}: {what}", fix=fix)

    def _backend(self, name: str, module: str) -> Backend:
        where = self.document.where(("modules", module, "framework"))
        if name not in self.catalogue.names("backends"):
            raise missing_backend(self.catalogue, name, where)
        backend = load_backend(self.catalogue, name)
        if self.args.stage not in backend.stages:
            fix, meant = former.answer("train", self.args.stage, backend.stages)
            raise RequestError(
                f"{name} has no stage '{self.args.stage}'",
                why=f"it has: {', '.join(backend.stages)}",
                fix=fix or f"train {backend.stages[0]}",
                kind="unknown",
                options=[self.args.stage],
                meant=meant,
            )
        return backend

    def _task_plan(
        self,
        experiment: Experiment,
        module: str,
        settings: Document,
        place: RunPlace,
        planned: BackendPlan,
        given: tuple[Variable, ...],
    ) -> TaskPlan:
        another = "mine" if experiment.exp_name != "mine" else "mine-2"
        # In a folder that runs share, a run of another name would continue from this one's checkpoint.
        shares = (planned.config.get("on_replay") or {}).get("folders")
        return TaskPlan(
            place=place,
            worker=planned.worker,
            prepare=planned.prepare,
            environment=planned.environment + given + self.environ.variables(),
            files=_files(experiment, module, settings.data, planned),
            requires=(*planned.requires, *host_memory.required(planned.config, self.call.distributed.nnodes)),
            config=planned.config,
            notes=planned.notes,
            next_steps=() if shares or ("exp_name",) in self.command_line.marks else (f"exp_name={another}",),
            metrics_rank=planned.metrics_rank,
            framework=experiment.modules[module].framework,
            model=_label(experiment.modules[module].model, settings.data.get("model")),
            folder=self.folder,
            reads=self._reads(settings),
            continues=planned.continues,
            loads=planned.loads,
        )


def packaged_folders(presets: str) -> tuple[str, ...]:
    """Return the folders of packages, whose files are there wherever their package is. `presets`: the backend's."""
    from primus_core.installed.data_folders import installed

    folders = [folder.path for group in ("primus.recipes", "primus.models") for folder in installed(group)]
    return tuple(os.path.join(folder, "") for folder in (*folders, presets) if folder)


def _files(
    experiment: Experiment, module: str, settings: Mapping[str, Any], planned: BackendPlan
) -> tuple[PlannedFile, ...]:
    """The settings as they were resolved."""
    model, data = settings.get("model") or {}, settings.get("data") or {}
    return (
        PlannedFile(BACKEND_CONFIG, json.dumps(planned.config, indent=1, sort_keys=True)),
        PlannedFile(EXPERIMENT, _experiment_text(experiment, module, settings)),
        PlannedFile("config/model_config.yaml", _yaml(model)),
        PlannedFile("config/data_config.yaml", _yaml({**planned.data, **data})),
    )


def _experiment_text(experiment: Experiment, module: str, settings: Mapping[str, Any]) -> str:
    """An experiment that gives the same plan anywhere."""
    rest = {key: value for key, value in settings.items() if key not in ("model", "data")}
    model, data = settings.get("model") or {}, settings.get("data") or {}
    whole = asdict(experiment)
    whole["modules"] = {
        module: {"framework": experiment.modules[module].framework, "model": model, "data": data, "overrides": rest}
    }
    return _yaml(whole)


def _yaml(data: Mapping[str, Any]) -> str:
    import yaml

    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # in C where it is built
    return str(yaml.dump(dict(data), Dumper=dumper, sort_keys=False))


def _label(given: str | Mapping[str, Any], settings: Any) -> str:
    """What to call the model in lists: the name of its preset or file, or what it says of itself if written out."""
    if isinstance(given, str):
        return os.path.splitext(os.path.basename(given))[0] if given.startswith("./") else given
    named = settings if isinstance(settings, Mapping) else {}
    return str(next((named[key] for key in ("name", "flavor", "family") if named.get(key)), ""))


def named(experiment: Experiment, module: Module) -> str:
    """The model, where the file names one; else the experiment."""
    return _label(module.model, None) or experiment.exp_name
