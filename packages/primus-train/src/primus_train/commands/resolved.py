"""`primus config show` and `diff`: an experiment as a launch on some machine has it, and whence."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from primus_core.config.document import Document, Path, at, dotted
from primus_core.config.files import TEMPLATE
from primus_core.contracts import launchers
from primus_core.environment.placement import resolve as place_in_job
from primus_core.errors import MachineError, Mistakes, PrimusError, RequestError
from primus_core.plan.plan import Distributed, Plan, RunPlace
from primus_core.planning import options as runtime_options
from primus_core.planning import planner
from primus_core.plugins.catalogue import Catalogue
from primus_core.plugins.contracts import TaskCall
from primus_core.request.arguments import flags_of
from primus_core.request.request import Layer, Request
from primus_machine import facts as machine
from primus_machine.captures.assumed import GPUS_PER_NODE, assume_gpus
from primus_machine.facts import Facts
from primus_machine.files import plain_json
from primus_machine.gpus import models
from primus_machine.gpus.visible import VISIBLE, hides_gpus
from primus_machine.host import UNREAD, HostRoot
from primus_machine.secrets.redaction import redact, refuse_secrets, secret_values, without_secrets
from primus_machine.units import counted
from primus_train import experiment, overrides
from primus_train import task as train
from primus_train.commands.written_paths import make_absolute
from primus_train.planning import Resolved
from primus_train.templates import catalogue, similar
from primus_train.templates.recipe import Template, leaves
from primus_train.which_run import NEW, repeated_words

__all__ = [
    "as_json",
    "as_yaml",
    "assume_machine",
    "diff",
    "name_machines",
    "place_of",
    "plan_launch",
    "refuse_misplaced",
    "resolve_file",
    "show",
    "write_text",
]

_RUN_DIR = "$PRIMUS_RUN_DIR"
"""Stands for the directory of a run that does not start."""
_STAGE = "pretrain"
_TOP = ("exp_name", "work_group", "user_name", "workspace", "on_non_finite")
_OURS = "Primus, for this machine and run"


_OUTPUT = ("-o", "--output", "--out")
"""What people type where they want a file; the output is redirected."""
_SOME_GPU = "MI300X"
"""Stands for the GPUs of machines that nobody named."""
_NO_GPU = "none"
"""Instead of a model: this machine, without a GPU."""


class _Row(NamedTuple):
    """A setting: its value, and the place that it is from."""

    value: Any
    origin: str
    default: bool = False
    """Nobody said anything."""


_Rows = dict[str, _Row]


def show(args: argparse.Namespace) -> int:
    """The experiment as it is written, with what it extends; or `--resolved`."""
    refuse_secrets(args.overrides)  # first: no other error shall quote one
    _refuse_output(args)
    refuse_misplaced(args)
    if args.resolved:
        rows = _rows(resolve_file(args.file, args, args.overrides)[0])
        data: Any = {key: {"value": row.value, "origin": row.origin} for key, row in rows.items()}
        write_text(as_json(data) if args.json else _table(rows))
        return 0
    document = _written(args)
    make_absolute(document, Catalogue.here(HostRoot(), args.layer))
    data = without_secrets(document.data, "")
    write_text(as_json(data) if args.json else as_yaml(data))
    return 0


def _refuse_output(args: argparse.Namespace) -> None:
    """Refuse the name of an output: the command writes to stdout.

    Raises:
        RequestError: with the command that redirects it.
    """
    words = args.overrides
    at = next((at for at, word in enumerate(words) if word.partition("=")[0] in _OUTPUT), len(words))
    if at == len(words):
        return
    flag, equals, value = words[at].partition("=")
    rest = words[at + 1 :]
    if not equals and rest and "=" in rest[0]:  # of Hydra, before a setting
        return
    if not equals and rest and rest[0][:1] != "-":
        value, rest = rest[0], rest[1:]
    value = "" if os.path.realpath(value) == os.path.realpath(args.file) else value  # the shell would empty it first
    kept = argparse.Namespace(**{**vars(args), "overrides": [*words[:at], *rest]})
    fix = f"redirect its output: {_typed(kept)} > {shlex.quote(value or 'FILE')}"
    raise RequestError(f"unknown option '{flag}'", fix=fix)


def _typed(args: argparse.Namespace) -> str:
    """The command `config show` with the options that it was given."""
    named = {"--assume-host": args.assume_host, "--gpu": args.gpu}
    named |= {"--gpus-per-node": args.gpus_per_node, "--nodes": args.nodes}
    options = [word for flag, value in named.items() if value for word in (flag, str(value))]
    switches = [flag for flag in ("--resolved", "--json") if getattr(args, flag[2:])]
    words = [args.file, *switches, *options, *repeated_words(args), *args.overrides]
    return shlex.join(["primus", "config", "show", *words])


def refuse_misplaced(args: argparse.Namespace) -> None:
    """Options that only a launch has: a setting of the framework is never called so."""
    refuse_secrets(args.overrides)  # first: no other error shall quote one
    direct = Catalogue.here(HostRoot(), args.layer).runtime("direct")
    parser = runtime_options.runtime_parser(direct, "")
    options, valued = flags_of(parser), {f for one in parser.actions() if one.nargs != 0 for f in one.option_strings}
    for word in args.overrides:
        if (flag := word.partition("=")[0]) in options or flag in ("--dry_run", "--dryrun"):
            has_value = flag == word and flag in valued
            raise RequestError(
                f"unknown option '{flag}'",
                why="it is an option of a launch, and this command starts nothing",
                fix=f"remove it{' and its value' * has_value}; see `primus config {args.action} --help`",
                kind="unknown",
                options=[flag],
                meant=None if has_value else "",
            )
    overrides.refuse_misspelt(args.overrides, args.flags)


def plan_launch(args: argparse.Namespace, facts: Facts, *, anew: bool = False) -> Plan:
    """The plan of a launch on the machine of `facts`."""
    which = [NEW] if anew else repeated_words(args)
    task = ("train", _STAGE, "--config", args.file, *which, *args.overrides)
    host = HostRoot()
    return planner.plan(
        Request((Layer("direct", ()),), task), host, Catalogue.here(host, args.layer), (), facts=facts
    ).plan


def diff(args: argparse.Namespace) -> int:
    """What is not equal, with the places of both."""
    _take_machine_of_template(args)
    found = {path: resolve_file(path, args) for path in (args.first, args.second)}
    machines = {path: on for path, (_, _, on) in found.items()}
    if len({*machines.values()}) > 1:
        each = ", ".join(f"{path} for {on}" for path, on in machines.items())
        sys.stderr.write(f"note: resolved for different machines: {each}; --gpu resolves both for one\n")
    first, second = (_rows(found[path][0]) for path in (args.first, args.second))
    differing = {
        key: (first.get(key), second.get(key))
        for key in (*first, *(key for key in second if key not in first))
        if _differ(first.get(key), second.get(key))
    }
    if args.json:
        write_text(as_json({key: {"first": _plain(a), "second": _plain(b)} for key, (a, b) in differing.items()}))
        return 0
    texts = [f"{key}\n  {_shown(a)}\n  {_shown(b)}\n" for key, (a, b) in differing.items()]
    write_text("".join(texts) or "no setting differs\n")
    return 0


def _take_machine_of_template(args: argparse.Namespace) -> None:
    """Where one of the two extends a template, and no machine is asked for: both are resolved for the template's."""
    if args.gpu or args.assume_host:
        return
    environ, found = HostRoot().environ, list[tuple[Template, ...]]()
    with Mistakes():  # they are found again when it is planned
        found = [catalogue.extended(path, environ) for path in (args.first, args.second)]
    if len(templates := [one[-1] for one in found if one]) == 1:
        args.gpu, args.nodes = templates[0].gpu, args.nodes or templates[0].nodes
        sys.stderr.write(f"note: both are resolved for {args.gpu}, the machine of the template\n")


def _differ(first: _Row | None, second: _Row | None) -> bool:
    """Settings that only one framework has do not count where nobody set them."""
    if first and second:
        return bool(first.value != second.value)
    return not (first or second or _Row(None, "")).default


def resolve_file(
    path: str, args: argparse.Namespace, overrides: Sequence[str] = ()
) -> tuple[Resolved, Distributed, str]:
    """The experiment in `path` on the machine that is asked for, its ranks, and that machine in words."""
    facts, on = assume_machine(path, args)
    words = argparse.Namespace(config=path, overrides=overrides, stage=_STAGE)

    def run(_: str, exp_name: str) -> RunPlace:
        return RunPlace(exp_name, _RUN_DIR, "")

    def resolve(facts: Facts) -> tuple[Resolved, Distributed]:
        place = place_in_job(facts, facts.environ)[0]
        return train.resolve(TaskCall((), words, facts, place, run, Catalogue.here(HostRoot(), args.layer))), place

    try:
        found, place = resolve(facts)
    except PrimusError as error:
        name_machines(error, args, facts, resolve)
        raise
    place = place._replace(one_per_node=launchers.find(found.planned.worker.launcher).one_per_node)
    return found, place, counted(place.nnodes, "node") + (f" with {place.gpus_per_node} {on} each" if on else "")


def name_machines(error: PrimusError, args: argparse.Namespace, facts: Facts, again: Callable[[Facts], object]) -> None:
    """Where the experiment may be for other machines than this one, which has no GPU, let errors that machines with
    GPUs would not give say how to name such machines, not what to set otherwise. `again` gives the errors of others.
    """
    is_decided = "GPUS_PER_NODE" in HostRoot().environ or hides_gpus(facts.gpus, facts.environ)
    if not facts.host.is_here or facts.gpus or args.assume_host or is_decided:
        return
    count = getattr(args, "gpus_per_node", None)
    others = facts._replace(gpus=assume_gpus(_SOME_GPU, count or GPUS_PER_NODE))
    ours, theirs = _mistakes(again, facts), _mistakes(again, others)
    of_machine = set[str]() if theirs - ours else ours - theirs  # with other errors, it would be refused there, too
    files = shlex.join([args.file] if hasattr(args, "file") else [args.first, args.second])
    nodes, resolved = getattr(args, "nodes", None), " --resolved" * getattr(args, "resolved", False)
    counts = {"--nodes": nodes, "--gpus-per-node": count}
    typed = [word for name, value in counts.items() if value for word in (name, str(value))]
    typed += getattr(args, "overrides", ())
    for one in error.each():
        if str(one) in of_machine:
            is_also = "GPUS_PER_NODE" in one.fix or isinstance(one, MachineError)  # several ranks; a file
            here = f"{one.fix}\n" if is_also else ""
            one.fix = (
                f"{here}this machine has no GPU; name the machines of the training: "
                f"primus config {args.action} {files}{resolved} {shlex.join(['--gpu', _SOME_GPU, *typed])}"
            )


def _mistakes(call: Callable[[Facts], object], facts: Facts) -> set[str]:
    try:
        call(facts)
    except PrimusError as error:
        return {str(one) for one in error.each()}
    return set()


def _written(args: argparse.Namespace) -> Document:
    """The experiment with what it extends, circles and missing files refused, and with the command line's settings."""
    environ = HostRoot().environ
    if not (args.file.startswith(TEMPLATE) or os.path.exists(args.file)):
        raise similar.missing_file(args.file, (), environ)
    document = experiment.read(args.file, environ)
    if not args.overrides:
        catalogue.extended(args.file, environ)
        return document
    facts = machine.read(HostRoot())
    words = argparse.Namespace(config=args.file, overrides=args.overrides, stage=_STAGE)
    return train.written(TaskCall((), words, facts, place_in_job(facts, environ)[0], lambda w, e: RunPlace(e, w, ""),
                                  Catalogue.here(HostRoot(), args.layer)))  # fmt: skip


def assume_machine(path: str, args: argparse.Namespace) -> tuple[Facts, str]:
    """Facts of the machine, and the model of its GPUs."""
    if args.assume_host and not args.gpu and models.by_name(args.assume_host) and not os.path.exists(args.assume_host):
        args.gpu, args.assume_host = args.assume_host, ""  # as a launch takes it
    facts = machine.read(_host(args))
    found: tuple[Template, ...] = ()
    if not (args.assume_host or args.gpu):
        with Mistakes():  # they are found again when it is planned
            found = catalogue.extended(path, facts.environ)
    template = found[-1] if found else None
    model = args.gpu or (template.gpu if template else "")
    if model == _NO_GPU:
        model, facts = "", facts._replace(gpus=())
    nodes = args.nodes or (template.nodes if template else None)
    count = args.gpus_per_node or (GPUS_PER_NODE if model else None)
    environ = {name: value for name, value in facts.environ.items() if not (model and name in VISIBLE)}
    asked = {"NNODES": nodes, "GPUS_PER_NODE": count, "NODE_RANK": nodes and 0, "MASTER_ADDR": nodes and "localhost"}
    environ |= {name: str(value) for name, value in asked.items() if value is not None}
    facts = facts._replace(environ=environ)
    if model:  # of what else such machines have, this one tells nothing
        facts = facts._replace(gpus=assume_gpus(model, count or 0), host=HostRoot(UNREAD, environ))
    return facts, facts.gpu_model


def _host(args: argparse.Namespace) -> HostRoot:
    if not args.assume_host:
        return HostRoot()
    from primus_machine.captures import capture

    if args.gpu:
        raise RequestError("--gpu and --assume-host exclude each other", fix="remove one of them")
    return capture.read(args.assume_host, HostRoot())


def _rows(found: Resolved) -> _Rows:
    """Every setting: what was said, what Primus sets, and what the framework does by itself."""
    planned, framework = found.planned, found.experiment.modules[found.module].framework
    default = f"default of {framework} {planned.config.get('framework_version', '')}".rstrip()
    rows = _top(found)
    written = {dotted(path): (path, value) for path, value in leaves(found.settings.data)}
    now = {name: planned.renamed.get(name, name) for name in written}
    configured = {name if now[name] in written else now[name]: one for name, one in written.items()}
    settings: Mapping[str, Any] = planned.config.get("settings") or {}
    for name in configured:
        bare = name.removeprefix("model.")
        wins = bare in configured and bare in settings  # what stands beside `model` over what is in it
        path, value = configured[bare if wins else name]
        origin = place_of(found.settings.where(path))
        if value is None and bare not in settings and planned.defaults.get(bare) is not None:
            rows[name] = _Row(planned.defaults[bare], f"{default}, for {origin}")
            continue
        taken = settings.get(bare, value)
        rows[name] = _Row(taken, origin if taken == value else f"Primus, from {origin}")
    more = {key for name in configured for key in (name, name.removeprefix("model."))}
    rows |= {name: _Row(value, _OURS) for name, value in settings.items() if name not in more}
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
            site = "primus.yaml" if path == ("workspace",) and value != "output" else ""
            origin = place_of(document.where(stands)) if is_set else site or "default"
            rows[dotted(path)] = _Row(value, origin, not (is_set or site))
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


def as_json(data: Any) -> str:
    """Return indented JSON."""
    return plain_json.dumps(data, indent=1, ensure_ascii=False) + "\n"


def as_yaml(data: Any) -> str:
    """Return the data as YAML, in its order."""
    import yaml

    return yaml.safe_dump(data, sort_keys=False, allow_unicode=True)


def write_text(text: str) -> None:
    """Write to stdout, without secrets of the environment."""
    sys.stdout.write(redact(text, secret_values(HostRoot().environ)))
