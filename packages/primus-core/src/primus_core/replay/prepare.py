"""A saved run, planned again: settings, environment and scripts from its snapshot, place and ranks from here."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from primus_core import variables
from primus_core.config import submission
from primus_core.environment.placement import MAX_GPUS_PER_NODE, node_count
from primus_core.environment.resolve import FAMILIES, belongs_to_session
from primus_core.plan.plan import BACKEND_CONFIG, HookPlugin, Plan, Requirement, RunPlace, Step, Variable
from primus_core.plugins.contracts import TaskPlan
from primus_core.replay.saved_plan import load
from primus_core.runs.names import parse_name
from primus_core.runs.saved import Saved
from primus_core.runs.snapshot_form import plugin_copies, script_copies
from primus_machine.errors import ConfigError, MachineError
from primus_machine.facts import Facts
from primus_machine.gpus.visible import visible
from primus_machine.secrets.names import SECRET
from primus_machine.variables import RUN_DIR

__all__ = ["Replay", "prepare"]

_PLANNED_HERE = frozenset({"direct", "network", "primus", "trust", "--numa"})
"""Origins of variables that say where the ranks stand and how this machine reaches others: never restored."""
_PLACEMENT = frozenset({"NNODES", "NODE_RANK", "GPUS_PER_NODE", "MASTER_ADDR", "MASTER_PORT"}) | {
    *(RUN_DIR, variables.PARENT)
}


class Replay(NamedTuple):
    """What a saved run asks of the planner."""

    saved: Saved
    plan: Plan
    """The saved plan, as it was."""
    task: TaskPlan
    scripts: tuple[Step, ...]
    """Hooks and patches, from the copies in the snapshot."""
    hook_plugins: tuple[HookPlugin, ...]
    """Python hooks: a person's files, too, are the copies."""
    environ: Mapping[str, str]
    """The environment as the saved run had it; who and where somebody is, from here."""
    restored: tuple[Variable, ...]
    unset: tuple[str, ...]
    missing_secrets: tuple[str, ...]
    """Variables whose value no snapshot holds, and which are not set here."""


def prepare(saved: Saved, facts: Facts, place: Callable[[str, str], RunPlace]) -> Replay:
    """The replay of `saved` here, in a run directory beside it.

    Raises:
        MachineError: its plan is of another schema, or no plan.
    """
    try:
        old = load(json.dumps(saved.plan))
    except ConfigError as error:
        raise MachineError(
            f"{saved.directory} cannot be replayed: {error.what}", why=error.why, fix=error.fix
        ) from None
    name = parse_name(os.path.basename(old.place.directory))
    new = place(os.path.dirname(saved.directory), name.exp_name if name else old.task.replace(" ", "-"))
    return _Preparation(saved, old, facts, new).replay()


class _Preparation:
    def __init__(self, saved: Saved, old: Plan, facts: Facts, new: RunPlace) -> None:
        self.saved, self.old, self.facts, self.new = saved, old, facts, new
        self.mover = _mover(old.place, new, saved.directory)

    def replay(self) -> Replay:
        environ, restored, missing = self.environment()
        return Replay(
            saved=self.saved,
            plan=self.old,
            task=self.task(),
            scripts=tuple(self.script(path, step) for path, step in script_copies(self.old.steps).items()),
            hook_plugins=self.plugins(),
            environ=environ,
            restored=restored,
            unset=tuple(sorted(set(self.facts.host.environ) - set(environ))),
            missing_secrets=missing,
        )

    def moved(self, value: Any) -> Any:
        """`value` with the run's own directory where it says the saved one's."""
        if isinstance(value, str):
            return self.mover(value)
        if isinstance(value, Mapping):
            return {key: self.moved(item) for key, item in value.items()}
        return [self.moved(item) for item in value] if isinstance(value, list | tuple) else value

    def task(self) -> TaskPlan:
        old = self.old
        if old.worker is None:
            raise MachineError(f"{self.saved.directory} cannot be replayed", why="its plan has no worker")
        config, changed = self.config()
        return TaskPlan(
            place=self.new,
            worker=old.worker._replace(args=tuple(self.moved(old.worker.args))),
            prepare=tuple(self.step(step) for step in old.steps if step.kind == "prepare"),
            files=tuple(file._replace(text=changed.get(file.path) or self.moved(file.text)) for file in old.files),
            requires=self.requires(),
            config=config,
            notes=(f"this run replays {self.saved.directory}",),
            metrics_rank=old.metrics_rank,
            framework=old.framework,
            model=old.model,
            loads=tuple(map(self.moved, old.loads)),
        )

    def config(self) -> tuple[Any, dict[str, str]]:
        """What the backend's worker gets, and the text of the file with it where a replay gets something else."""
        config = self.moved(self.old.config)
        if not (changes := self.on_replay):
            return config, {}
        settings = {**config["settings"], **self.moved(changes["settings"])}
        config = {**config, "settings": {name: value for name, value in settings.items() if value is not None}}
        return config, {BACKEND_CONFIG: json.dumps(config, indent=1, sort_keys=True)}

    @property
    def on_replay(self) -> Mapping[str, Any]:
        """What the backend says of replays (`BackendPlan.config`)."""
        return (self.old.config or {}).get("on_replay") or {}

    def requires(self) -> tuple[Requirement, ...]:
        """What must be here; not the folders of others that a replay leaves alone."""
        left = self.on_replay.get("folders", ())
        kept = (needed for needed in self.old.requires if needed.kind != "folder" or needed.name not in left)
        moved = (needed._replace(name=self.moved(needed.name)) for needed in kept)
        fix = "the run began with this checkpoint, so a replay needs it"
        return (*moved, *(Requirement("file", path, fix) for path in self.on_replay.get("files", ())))

    def step(self, step: Step) -> Step:
        return step._replace(argv=self.command(step.argv), cwd=self.facts.cwd)

    def script(self, path: str, step: Step) -> Step:
        copy = os.path.join(self.saved.directory, path)
        argv = tuple(copy if word == step.script else word for word in self.command(step.argv))
        return step._replace(name=f"{step.kind} {path}", argv=argv, cwd=self.facts.cwd, script=copy)

    def plugins(self) -> tuple[HookPlugin, ...]:
        copies = {plugin: path for path, plugin in plugin_copies(self.old.hook_plugins).items()}
        return tuple(
            plugin._replace(target=os.path.join(self.saved.directory, copies[plugin])) if plugin in copies else plugin
            for plugin in self.old.hook_plugins
        )

    def command(self, argv: Sequence[str]) -> tuple[str, ...]:
        return (self.facts.python if argv[0] == self.old.python else argv[0], *self.moved(argv[1:]))

    def ranks_per_node(self) -> int:
        """So many that all are as many as they were, if that is possible on the nodes here."""
        if self.old.distributed.one_per_node:  # its process drives as many devices as it was planned for
            return self.old.distributed.gpus_per_node
        per_node, rest = divmod(self.old.distributed.world_size, node_count(self.facts.environ))
        most = len(visible(self.facts.gpus, self.facts.environ)) or MAX_GPUS_PER_NODE
        return self.old.distributed.gpus_per_node if rest or not 0 < per_node <= most else per_node

    def environment(self) -> tuple[dict[str, str], tuple[Variable, ...], tuple[str, ...]]:
        """The whole environment, the variables in it that are restored, and the secrets that nobody knows."""
        here = self.facts.environ
        environ = {name: value for name, value in here.items() if not name.startswith(FAMILIES) or _is_ours(name)}
        environ.setdefault("GPUS_PER_NODE", str(self.ranks_per_node()))
        planned = {v.name: v for v in self.old.environment}
        restored, missing = [], []
        for name, dumped in self.saved.environment.items():
            known = planned.get(name)
            if _is_ours(name) or (known and known.origin in _PLANNED_HERE):
                continue
            secret = SECRET in dumped  # the whole of it, or a part
            if secret and name not in here:
                missing += [name] if known else []
                continue
            environ[name] = here[name] if secret else self.moved(dumped)
            if known or here.get(name) != environ[name]:
                restored.append(Variable(name, environ[name], "replay", _why(known), secret=secret))
        return environ, tuple(restored), tuple(missing)


def _mover(old: RunPlace, new: RunPlace, saved: str) -> Callable[[str], str]:
    """Replaces directory and id of a run, as they are and as JSON has them; in one pass: `run_2` begins like `run`.

    What was submitted with it stays where it is saved: a replay has no copies of its own.
    """
    pairs = {old.directory: new.directory, old.run_id: new.run_id}
    pairs[f"{old.directory}/{submission.FOLDER}"] = f"{saved}/{submission.FOLDER}"
    pairs |= {json.dumps(before)[1:-1]: json.dumps(after)[1:-1] for before, after in pairs.items()}
    forms = "|".join(re.escape(form) for form in sorted(pairs, key=len, reverse=True))
    pattern = re.compile(rf"(?:{forms})(?![\w+-])")
    return lambda text: pattern.sub(lambda match: pairs[match[0]], text)


def _why(known: Variable | None) -> str:
    """Why the saved run had a variable; a replay of a replay says it once."""
    if known is None:
        return "in the environment of the saved run"
    return known.why if known.origin == "replay" else f"{known.origin}: {known.why}".removesuffix(": ")


def _is_ours(name: str) -> bool:
    """Whether a variable says who, where and beside whom: that is as it is here, not as it was."""
    return name in _PLACEMENT or belongs_to_session(name)
