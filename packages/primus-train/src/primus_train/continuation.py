"""Continuing an earlier run: which run may be continued, and which of its settings must be the same.

Only a run of the same user, with a complete snapshot, that has certainly ended is continued. Where a setting that
matters differs, the person decides: `--continue` or `--new`.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from primus_core import variables
from primus_core.config.document import Document
from primus_core.errors import ConfigError, RequestError
from primus_core.journal import record
from primus_core.journal.record import RunRecord
from primus_core.plan.plan import BACKEND_CONFIG, EXPERIMENT, METRICS, PLAN, Distributed, RunPlace
from primus_core.runs.rundir import COMPLETED
from primus_core.runs.settings import differing, dotted, flatten
from primus_core.runs.snapshot_form import MANIFEST
from primus_core.runs.state import state_of
from primus_machine.facts import Facts
from primus_machine.files import lease, plain_json, trust
from primus_machine.files.atomic import regular
from primus_machine.processes import ranks_of
from primus_train.failed_loads import FailedLoads
from primus_train.which_run import CONTINUE, FROM, NEW, AskedRun, earlier_runs

__all__ = [
    "CHANGEABLE",
    "Changed",
    "Earlier",
    "Start",
    "changes",
    "refuse_changes",
    "refuse_fixed",
    "require_whole",
]

_RANKS_S = 20.0
"""So long the ranks of a run whose Primus was killed are waited for."""
_READ = (record.FILE, PLAN, MANIFEST, BACKEND_CONFIG, lease.FOLDER)
"""What of an earlier run is read before its checkpoint."""

CHANGEABLE = (
    *("framework_version", "checkout", "device", "metrics_rank", "data_parallel", "on_replay", "on_non_finite"),
    *("hyperparameters", "flops_per_token", "peak_tflops"),  # what follows from the settings
    *("steps", "training.steps", "train_iters", "log_config", "log_interval", "metrics"),
    *("save", "load", "save_interval", "exit_interval", "num_workers", "wandb_*", "tensorboard_*"),
)
"""Settings that a continued run may have otherwise, for every backend: patterns of names, each with all below it."""


class Changed(NamedTuple):
    """A setting that the earlier run had otherwise. Empty: it was not set."""

    name: str
    there: str
    here: str
    where: str
    """`file:line` of the setting here."""
    fixed: bool = False
    """Whether the checkpoint cannot be loaded with it."""

    def __str__(self) -> str:
        where = f"  ({self.where})" if self.where else ""
        return f"{self.name}: {self.there or 'not set'} there, {self.here or 'not set'} here{where}"


class Start(NamedTuple):
    """What the run that starts now has."""

    config: Mapping[str, Any]
    """Its resolved settings."""
    directory: str
    changeable: Sequence[str] = ()
    """What its backend adds to `CHANGEABLE`."""
    defaults: Mapping[str, Any] = {}
    """What the framework does where a setting is missing."""
    written: Document = Document({})
    """The settings as the person wrote them, with their places."""
    machine_known: bool = True
    """Whether the nodes are known. Before a scheduler has chosen them, what follows from their devices is a guess."""
    fixed: Sequence[str] = ()
    """What its backend says no checkpoint can be loaded with otherwise (`BackendPlan.fixed`)."""
    nnodes: int = 0
    """Its nodes; 0: not known."""


class Earlier:
    """The earlier runs of an experiment, as a run that starts at `place` finds them. `which`: what was asked for."""

    def __init__(
        self,
        place: RunPlace,
        facts: Facts,
        distributed: Distributed,
        which: AskedRun = AskedRun(),  # noqa: B008  # a tuple
        failed: FailedLoads | None = None,
    ) -> None:
        self.place, self.facts, self.distributed, self.which = place, facts, distributed, which
        self.failed, self.ranks = failed, list[int]()
        self.asked = False
        """Whether the backend would continue a run: the person's settings may want none."""
        self.running = ""
        """The newest of them, if it may still be running: then none is continued."""
        self.notes: list[str] = []
        self._found: list[str] | None = None

    def files(self, pattern: str) -> tuple[str, ...]:
        """Files that match `pattern` in the runs that may be continued, newest run first.

        Those of a checkpoint that could not be loaded are left out, unless there are no others, or its step is asked
        for. It stops at the newest run that completed, or that may be running: what came before is done with. A
        completed one is among them where the person says `--continue`. A run that is named is the only one.
        """
        import glob

        if self.which.option == NEW:
            return ()
        self.asked = True
        if self._found is None:
            self._found = list(self._runs())
        by_run = [sorted(glob.glob(f"{glob.escape(run)}/{pattern}")) for run in self._found]
        why = {path: self.failure(os.path.dirname(path)) for found in by_run for path in found}
        if all(why.values()):
            return tuple(why)
        for found in by_run:
            for path in filter(why.get, found):
                name = os.path.relpath(os.path.dirname(path), os.path.dirname(self.place.directory))
                self.notes.append(f"skips {name}: it could not be loaded ({why[path]})")
            if not all(map(why.get, found)):  # what lies in older runs is not asked for
                break
        return tuple(path for path in why if not why[path])

    def failure(self, checkpoint: str) -> str:
        """Return why a `checkpoint` could not be loaded; empty: it can be, or its step is asked for."""
        return self.failed.why(checkpoint) if self.failed and self.which.step is None else ""

    def _runs(self) -> Iterator[str]:
        named = self.which.run
        for directory in (named,) if named else earlier_runs(self.place):
            if why := self._doubt(directory):
                name = os.path.basename(directory)
                self.notes.append(f"does not continue {name}: {why}; to trust it: {trust.command(directory)}")
                continue
            known = record.read(directory)
            if known.status == COMPLETED:
                if self.which.option in (CONTINUE, FROM):
                    yield directory
                return
            if self._is_node_of_this_launch(directory, known):
                continue
            state = state_of(known, directory, self.facts.host)
            began = os.path.exists(f"{directory}/{MANIFEST}")  # without a whole snapshot, no rank has
            if state == "running" or (began and state in ("started", "submitted")):
                self.running = directory
                return
            if state == "lost" and self._await_ranks(directory):
                self.running = directory
                return
            if began:
                yield directory

    def _await_ranks(self, directory: str) -> bool:
        """Whether ranks of a lost run live here, also after a while: until they end, they save and hold devices."""
        if not self.facts.host.is_here:
            return False
        deadline, told = time.monotonic() + _RANKS_S, False
        while ranks := ranks_of(directory):
            self.ranks = ranks
            if time.monotonic() > deadline:
                return True
            if not told:
                name, left = os.path.basename(directory), ", ".join(map(str, ranks))
                sys.stderr.write(f"primus: waiting for the ranks of {name} to end: processes {left}\n")
                told = True
            time.sleep(0.2)
        self.ranks = []
        return False

    def _doubt(self, directory: str) -> str:
        """Why the run is not believed: its directory, and what is read of it."""
        believed = trust.of(self.facts.host.environ)
        found = (believed.doubt(f"{directory}/{name}".rstrip("/")) for name in ("", *_READ))
        return next(filter(None, found), "")

    def _is_node_of_this_launch(self, directory: str, known: RunRecord) -> bool:
        """Whether it is another node's part of the launch that this node belongs to, where each has its own run."""
        here = self.distributed
        if here.nnodes == 1 or known.status not in ("preparing", "started"):
            return False
        there = _json(f"{directory}/{PLAN}").get("distributed") or {}
        named = ("nnodes", "master_addr", "master_port")
        same = all(there.get(name) == getattr(here, name) for name in named)
        return not there or (same and there.get("node_rank") != here.node_rank)

    def refuse_used_directory(self) -> None:
        """Refuse an answer to which run is continued, where a person names the directory of one.

        Raises:
            RequestError: its checkpoints would be loaded whatever was asked for.
        """
        option, directory, host = self.which.option, self.place.directory, self.facts.host
        by_hand = self.place.joined and variables.RUN_ID not in self.facts.environ
        if not (option and by_hand and os.path.exists(f"{directory}/{METRICS}")):
            return
        if state_of(record.read(directory), directory, host) != "running":
            raise RequestError(
                f"{option}: PRIMUS_RUN_DIR names a run that has made steps: {directory}",
                why="a training continues from the checkpoints in its own run directory",
                fix="unset PRIMUS_RUN_DIR, or name a new folder in it",
            )

    def refuse_a_second(self, start: Start) -> None:
        """Refuse what would be the same run once more, beside the one that is running.

        Raises:
            RequestError: it would.
        """
        if not self.running or not self.facts.host.is_known:  # the nodes will see when the job begins
            return
        name = os.path.basename(self.running)
        if not changes(self.running, start):
            raise self.runs_already("this launch would start the same training a second time, from the first step")
        self.notes.append(f"does not continue {name}: it may still be running")

    def tell_of_a_fresh_start(self) -> None:
        """Note that training starts from the first step, although the newest earlier run had made steps."""
        if self.asked and self._found and os.path.exists(f"{self._found[0]}/{METRICS}"):
            name = os.path.basename(self._found[0])
            self.notes.append(f"starts from the first step: {name} has no complete checkpoint")

    def runs_already(self, why: str) -> RequestError:
        """The error for a run that cannot be continued because it may be running."""
        held = lease.look(self.running, self.facts.host)
        owner = f"{held.whose()}: {held.sign_of_life()}" if held else "its status is unknown here"
        stop = f"stop it: primus stop {self.running}"
        if self.ranks:
            numbers = " ".join(map(str, self.ranks))
            owner, stop = f"{owner}, but its ranks are still running: {numbers}", f"wait for them, or: kill {numbers}"
        new = f"{NEW}, without {self.which.option}" if self.which.option else NEW
        return RequestError(
            f"{os.path.basename(self.running)} may still be running",
            why=f"{owner}\n{why}",
            fix=f"{stop}\nor start a run beside it: {new}",
        )

    def nothing_to_continue(self, framework: str) -> RequestError:
        """The error for `--continue` or `--from` where no run of this `framework` can be continued."""
        option, run = self.which.option, self.which.run
        if self.running:
            return self.runs_already("only a run that has ended can be continued")
        why = "no earlier run of this experiment has a complete snapshot and a complete checkpoint"
        if run:
            known, name = record.read(run), os.path.basename(run)
            why, theirs = f"{name} has no complete checkpoint", known.framework
            if known.status == "unwatched":
                why = f"{name} was started from the script of a dry run, and has no snapshot to compare with"
            elif theirs and theirs != framework:
                why = f"{name} was trained with {theirs}, and {framework} cannot load its checkpoints"
        fix = f"remove {option}: training starts from the first step"
        if not self.asked:
            why = "the settings disable checkpoints, or continuing"
            on = "checkpoints must be on (TorchTitan: checkpoint.enable=true; Megatron: save_interval=100)"
            fix = f"{on}, without auto_continue_train=false and a checkpoint to load (load, load_step, ...); or {fix}"
        elif run:
            fix = f"name another run, or start from the first step: {NEW}, without {option}"
        why = "\n".join((why, *self.notes))
        return RequestError(f"{option}: there is nothing to continue", why=why, fix=fix)


def require_whole(run: str) -> None:
    """Refuse to continue a run whose snapshot is damaged: nobody could say with which settings it trained.

    Raises:
        RequestError: it is.
    """
    from primus_core.runs.saved import Damaged, load  # most runs continue no other one

    try:
        load(run)
    except Damaged as error:
        raise RequestError(
            f"{os.path.basename(run)} would be continued, but its snapshot is not complete",
            why="; ".join(filter(None, (error.what, error.why))),
            fix=f"restore the file, or start from the first step: {NEW}, without --continue",
        ) from None


def refuse_changes(run: str, start: Start) -> None:
    """Refuse to continue `run` with other settings.

    Raises:
        ConfigError: they differ where it matters.
    """
    if found := changes(run, start):
        refuse_fixed(run, found)
        count = "1 setting differs" if len(found) == 1 else f"{len(found)} settings differ"
        then = (_json(f"{run}/{PLAN}").get("distributed") or {}).get("nnodes") or start.nnodes
        nodes = f"; that run had {then} nodes, this one has {start.nnodes}" if then != start.nnodes != 0 else ""
        raise ConfigError(
            f"{os.path.basename(run)} would be continued, but {count}{nodes}",
            where=next((one.where for one in found if one.where), ""),
            why="\n".join(map(str, found)),
            fix=f"continue anyway: {CONTINUE}\nor start from the first step: {NEW}, without --continue",
        )


def refuse_fixed(run: str, found: Sequence[Changed]) -> None:
    """Refuse to continue `run` over a change with which its checkpoint cannot be loaded.

    Raises:
        ConfigError: there is one in `found`.
    """
    if fixed := [one for one in found if one.fixed]:
        raise ConfigError(
            f"{os.path.basename(run)} cannot be continued with this change",
            where=next((one.where for one in fixed if one.where), ""),
            why="\n".join((*map(str, fixed), "the checkpoint cannot be loaded into another model or optimizer")),
            fix=f"keep the setting of the earlier run\nor start from the first step: {NEW}, without --continue",
        )


def changes(run: str, start: Start) -> list[Changed]:
    """The settings that matter and that `start` has otherwise than the earlier `run`.

    Where the nodes are not known yet, only those that somebody wrote, now or then: the nodes compare the others.
    """
    recorded = (_json(f"{run}/{PLAN}").get("place") or {}).get("directory") or run  # it may lie elsewhere now
    there = _material(_json(f"{run}/{BACKEND_CONFIG}"), recorded, start)
    here = _material(start.config, start.directory, start)
    found: dict[tuple[str, str], Changed] = {}  # a backend may name the model's settings twice
    for name, before, after in differing(there, here):
        shown, where = _written(name, start.written.marks)
        fixed = _matches(name, start.fixed) or (not (before and after) and _matches(f"?{name}", start.fixed))
        found.setdefault((shown.rpartition(".")[2], after), Changed(shown, before, after, where, fixed))
    then = () if start.machine_known else _leaves_written(run)
    return [one for one in found.values() if start.machine_known or one.where or one.name.rpartition(".")[2] in then]


def _leaves_written(run: str) -> set[str]:
    """The last parts of the names that stand in the experiment of `run`, its command line included."""
    import yaml  # not where a launch continues nothing

    with open(f"{run}/{EXPERIMENT}", encoding="utf-8") as file:  # it is whole: its checksum was looked at
        return {str(path[-1]) for path in flatten(yaml.safe_load(file)) if path}


def _material(config: Mapping[str, Any], directory: str, start: Start) -> dict[str, Any]:
    """The settings that matter, by name, less those that are the framework's default anyway.

    What lies below the run's own directory, or is named after the run, is the same in every run.
    """
    text = json.dumps(config)
    for own, mark in ((directory, "<run>"), (os.path.basename(directory), "<id>")):
        text = re.sub(rf"{re.escape(json.dumps(own)[1:-1])}(?![\w+-])", mark, text)
    resolved = plain_json.loads(text)
    settings = resolved.pop("settings", None) or {}
    named = {dotted(path): value for path, value in flatten({**resolved, **settings}).items()}
    patterns = (*CHANGEABLE, *start.changeable)
    return {
        name: value
        for name, value in named.items()
        if value is not None and value != start.defaults.get(name) and not _matches(name, patterns)
    }


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) or fnmatchcase(name, f"{pattern}.*") for pattern in patterns)


def _written(name: str, places: Mapping[Any, str]) -> tuple[str, str]:
    """A setting's name and place as the person wrote it, where that can be told."""
    parts = tuple(name.split("."))
    same = [path for path in places if path and (path == parts or path[-1] == parts[-1])]
    path = parts if parts in places else same[0] if len(same) == 1 else ()
    return (".".join(map(str, path)), places[path]) if path else (name, "")


def _json(path: str) -> dict[str, Any]:
    try:
        with open(path, encoding="utf-8", opener=regular) as file:
            data = plain_json.loads(file.read())
    except (OSError, ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}
