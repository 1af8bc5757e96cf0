"""`primus config show`, `validate` and `diff`: an experiment as a launch on some machine has it, and whence."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from primus_core import requirements
from primus_core.config.document import Document, Path, at, dotted
from primus_core.contracts import launchers
from primus_core.environment.placement import VISIBLE, hides_gpus
from primus_core.environment.placement import resolve as place_in_job
from primus_core.errors import Mistakes, PrimusError, RequestError
from primus_core.plan.plan import Distributed, Plan, RunPlace
from primus_core.planning import options as runtime_options
from primus_core.planning import planner
from primus_core.plugins.catalogue import Catalogue
from primus_core.plugins.contracts import TaskCall
from primus_core.request.arguments import flags_of
from primus_core.request.request import Layer, Request
from primus_machine import facts as machine
from primus_machine.facts import Facts, Gpu
from primus_machine.files import plain_json
from primus_machine.gpus.devices import memory_of
from primus_machine.host import UNREAD, HostRoot
from primus_machine.secrets.redaction import redact, refuse_secrets, secret_values, without_secrets
from primus_machine.units import counted
from primus_train import experiment
from primus_train import task as train
from primus_train.continuation import CONTINUE, NEW
from primus_train.task import Resolved
from primus_train.templates import catalogue
from primus_train.templates.recipe import GPUS_PER_NODE, Template, leaves

__all__ = ["diff", "show", "validate"]

_RUN_DIR = "$PRIMUS_RUN_DIR"
"""Stands for the directory of a run that does not start."""
_STAGE = "pretrain"
_SOME_GPU = "MI300X"
_TOP = ("exp_name", "work_group", "user_name", "workspace", "on_non_finite")
_OURS = "Primus, for this machine and run"


class _Row(NamedTuple):
    """A setting: its value, and the place that it is from."""

    value: Any
    origin: str
    default: bool = False
    """Nobody said anything."""


_Rows = dict[str, _Row]


def show(args: argparse.Namespace) -> int:
    """The experiment as it is written, with what it extends; or `--resolved`."""
    _refuse_misplaced(args)
    if args.resolved:
        rows = _rows(_resolved(args.file, args, args.overrides)[0])
        data: Any = {key: {"value": row.value, "origin": row.origin} for key, row in rows.items()}
        _write(_json(data) if args.json else _table(rows))
        return 0
    data = without_secrets(_written(args).data, "")
    _write(_json(data) if args.json else _yaml(data))
    return 0


def validate(args: argparse.Namespace) -> int:
    """One line on what it would be. What a launch would refuse is an error, in the same words: it is planned."""
    _refuse_misplaced(args)
    facts = _machine(args.file, args)[0]
    try:
        whole = _planned(args, facts)
    except PrimusError as error:
        if _may_have_gpus(args, facts):
            _name_machines(error, args, facts)
        raise
    if facts.host.is_here:
        requirements.check_plan(whole, facts.host.environ, installed=False)
    found, place, on = _resolved(args.file, args, args.overrides)
    planned = found.planned
    layout = ", ".join(f"{name} {size}" for name, size in planned.layout.items() if size > 1 or name == "data")
    tokens = f"{planned.tokens_per_step:,} tokens per step" if planned.tokens_per_step else ""
    ranks = "number of ranks not known" if place.tentative else counted(place.world_size, "rank")
    parts = filter(None, (found.experiment.modules[found.module].framework, f"{ranks} ({on})", layout, tokens))
    _write(f"{args.file} is valid: {'; '.join(parts)}\n")
    absent = requirements.absent_files(whole) if not facts.host.is_here else []
    notes = (*planned.notes, *(f"{e.what} here; the nodes need it" for e in absent))
    _write("".join(f"note: {note}\n" for note in notes))
    return 0


def _refuse_misplaced(args: argparse.Namespace) -> None:
    """Options that only a launch has: a setting of the framework is never called so."""
    refuse_secrets(args.overrides)  # first: no other error shall quote one
    direct = Catalogue.here(HostRoot(), args.layer).runtime("direct")
    options = flags_of(runtime_options.runtime_parser(direct, ""))
    for word in args.overrides:
        if (flag := word.partition("=")[0]) in options:
            raise RequestError(
                f"'{flag}' is not known here",
                why="it is an option of a launch, and this command starts nothing",
                fix=f"remove it; see `primus config {args.action} --help`",
            )


def _planned(args: argparse.Namespace, facts: Facts, *, anew: bool = False) -> Plan:
    """The plan of a launch on the machine of `facts`."""
    which = [NEW] * (anew or args.anew) or [CONTINUE] * args.always
    task = ("train", _STAGE, "--config", args.file, *which, *args.overrides)
    host = HostRoot()
    return planner.plan(
        Request((Layer("direct", ()),), task), host, Catalogue.here(host, args.layer), (), facts=facts
    ).plan


def _may_have_gpus(args: argparse.Namespace, facts: Facts) -> bool:
    """Whether the experiment may be for other machines than this one, which has no GPU: nobody said so, or hid them."""
    is_decided = "GPUS_PER_NODE" in facts.environ or hides_gpus(facts.environ)
    return facts.host.is_here and not (facts.gpus or args.assume_host or is_decided)


def _name_machines(error: PrimusError, args: argparse.Namespace, facts: Facts) -> None:
    """Let errors that machines with GPUs would not give say how to name such machines, not what to set otherwise."""
    gpus = _gpus(_SOME_GPU, GPUS_PER_NODE)
    of_machine = _mistakes(args, facts) - _mistakes(args, facts._replace(gpus=gpus))
    for one in error.each():
        if str(one) in of_machine:
            one.fix = (
                "this machine has no GPU; name the machines of the training: "
                f"primus config validate {shlex.quote(args.file)} --gpu {_SOME_GPU} --nodes N"
            )


def _mistakes(args: argparse.Namespace, facts: Facts) -> set[str]:
    """The errors of a new run on the machine of `facts`: those about an earlier run are not about the machine."""
    try:
        _planned(args, facts, anew=True)
    except PrimusError as error:
        return {str(one) for one in error.each()}
    return set()


def diff(args: argparse.Namespace) -> int:
    """What is not equal, with the places of both."""
    first, second = (_rows(_resolved(path, args)[0]) for path in (args.first, args.second))
    differing = {
        key: (first.get(key), second.get(key))
        for key in (*first, *(key for key in second if key not in first))
        if _differ(first.get(key), second.get(key))
    }
    if args.json:
        _write(_json({key: {"first": _plain(a), "second": _plain(b)} for key, (a, b) in differing.items()}))
        return 0
    texts = [f"{key}\n  {_shown(a)}\n  {_shown(b)}\n" for key, (a, b) in differing.items()]
    _write("".join(texts) or "no setting differs\n")
    return 0


def _differ(first: _Row | None, second: _Row | None) -> bool:
    """Settings that only one framework has do not count where nobody set them."""
    if first and second:
        return bool(first.value != second.value)
    return not (first or second or _Row(None, "")).default


def _resolved(path: str, args: argparse.Namespace, overrides: Sequence[str] = ()) -> tuple[Resolved, Distributed, str]:
    """The experiment in `path` on the machine that is asked for, its ranks, and that machine in words."""
    facts, on = _machine(path, args)
    place = place_in_job(facts, facts.environ)[0]
    words = argparse.Namespace(config=path, overrides=overrides, stage=_STAGE)

    def run(_: str, exp_name: str) -> RunPlace:
        return RunPlace(exp_name, _RUN_DIR, "")

    devices = f" with {place.gpus_per_node} {on} each" if on else ""
    found = train.resolve(TaskCall((), words, facts, place, run, Catalogue.here(HostRoot(), args.layer)))
    place = place._replace(one_per_node=launchers.find(found.planned.worker.launcher).one_per_node)
    return found, place, counted(place.nnodes, "node") + devices


def _written(args: argparse.Namespace) -> Document:
    """The experiment with what it extends, circles and missing files refused, and with the command line's settings."""
    environ = HostRoot().environ
    document = experiment.read(args.file, environ)
    if not args.overrides:
        catalogue.extended(args.file, environ)
        return document
    facts = machine.read(HostRoot())
    words = argparse.Namespace(config=args.file, overrides=args.overrides, stage=_STAGE)
    return train.written(TaskCall((), words, facts, place_in_job(facts, environ)[0], lambda w, e: RunPlace(e, w, ""),
                                  Catalogue.here(HostRoot(), args.layer)))  # fmt: skip


def _machine(path: str, args: argparse.Namespace) -> tuple[Facts, str]:
    """Facts of the machine, and the model of its GPUs."""
    facts = machine.read(_host(args))
    found: tuple[Template, ...] = ()
    if not (args.assume_host or args.gpu):
        with Mistakes():  # they are found again when it is planned
            found = catalogue.extended(path, facts.environ)
    template = found[-1] if found else None
    model = args.gpu or (template.gpu if template else "")
    nodes = args.nodes or (template.nodes if template else None)
    count = args.gpus_per_node or (GPUS_PER_NODE if model else None)
    environ = {name: value for name, value in facts.environ.items() if not (model and name in VISIBLE)}
    asked = {"NNODES": nodes, "GPUS_PER_NODE": count, "NODE_RANK": nodes and 0, "MASTER_ADDR": nodes and "localhost"}
    environ |= {name: str(value) for name, value in asked.items() if value is not None}
    facts = facts._replace(environ=environ)
    if model:  # of what else such machines have, this one tells nothing
        facts = facts._replace(gpus=_gpus(model, count or 0), host=HostRoot(UNREAD, environ))
    return facts, facts.gpu_model


def _host(args: argparse.Namespace) -> HostRoot:
    if not args.assume_host:
        return HostRoot()
    from primus_machine.captures import capture

    if args.gpu:
        raise RequestError("--gpu and --assume-host exclude each other", fix="remove one of them")
    return capture.read(args.assume_host, HostRoot())


def _gpus(name: str, count: int) -> tuple[Gpu, ...]:
    from primus_core.errors import suggestion
    from primus_machine.gpus import models

    model = models.by_name(name)
    if not model:
        known = [one.name for one in models.load()]
        near = suggestion(name, known) or "or capture the machine: primus env capture"
        raise RequestError(f"no GPU is called '{name}'", why=f"known: {', '.join(known)}", fix=near)
    one = Gpu(model.vendor, "", model.pci_devices[0], model=model.name, architecture=model.architecture,
              memory_bytes=memory_of(model))  # fmt: skip
    return tuple(one._replace(pci_address=f"0000:{index:02x}:00.0", gpu=index) for index in range(count))


def _rows(found: Resolved) -> _Rows:
    """Every setting: what was said, what Primus sets, and what the framework does by itself."""
    planned, framework = found.planned, found.experiment.modules[found.module].framework
    rows = _top(found)
    configured = {dotted(path): (path, value) for path, value in leaves(found.settings.data)}
    settings: Mapping[str, Any] = planned.config.get("settings") or {}
    for name, (path, value) in configured.items():
        origin = place_of(found.settings.where(path))
        bare = name.removeprefix("model.")
        now = settings.get(bare, value)
        rows[name] = _Row(now, origin if now == value else f"Primus, from {origin}")
    more = {key for name in configured for key in (name, name.removeprefix("model."))}
    rows |= {name: _Row(value, _OURS) for name, value in settings.items() if name not in more}
    version = planned.config.get("framework_version", "")
    default = f"default of {framework} {version}".rstrip()
    rows |= {
        name: _Row(value, "default of Primus" if name in planned.own else default, default=True)
        for name, value in sorted(planned.defaults.items())
        if name not in more and name not in rows
    }
    return {key: row._replace(value=without_secrets(row.value, key)) for key, row in rows.items()}


def _top(found: Resolved) -> _Rows:
    """What stands beside the module's settings."""
    experiment, document = found.experiment, found.document
    values: dict[Path, Any] = {(name,): getattr(experiment, name) for name in _TOP}
    values |= {("env", name): value for name, value in experiment.env.items()}
    values[("framework",)] = experiment.modules[found.module].framework
    rows = {}
    for path, value in values.items():
        stands = ("modules", found.module, "framework") if path == ("framework",) else path
        is_set = at(document.data, stands) is not None
        if is_set or value:
            rows[dotted(path)] = _Row(value, place_of(document.where(stands)) if is_set else "default", not is_set)
    return rows


def place_of(origin: str) -> str:
    """A place as short as it is clear: from the folder where the person stands, or from its package on."""
    here = os.path.join(os.getcwd(), "")
    if origin.startswith(here) or not os.path.isabs(origin):
        return origin.removeprefix(here)
    folder = os.path.dirname(origin)
    while len(folder) > 1 and not os.path.isfile(os.path.join(folder, "__init__.py")):
        folder = os.path.dirname(folder)
    return os.path.relpath(origin, os.path.dirname(folder)) if len(folder) > 1 else origin


def _shown(row: _Row | None) -> str:
    return f"{_short(row.value):<24}  {row.origin}" if row else "-"


def _plain(row: _Row | None) -> Any:
    return {"value": row.value, "origin": row.origin} if row else None


def _table(rows: _Rows) -> str:
    width = max(map(len, rows))
    return "".join(f"{key:<{width}}  {_short(row.value):<24}  {row.origin}\n" for key, row in rows.items())


def _short(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _json(data: Any) -> str:
    return plain_json.dumps(data, indent=1, ensure_ascii=False) + "\n"


def _yaml(data: Any) -> str:
    import yaml

    return yaml.safe_dump(data, sort_keys=False, allow_unicode=True)


def _write(text: str) -> None:
    sys.stdout.write(redact(text, secret_values(HostRoot().environ)))
