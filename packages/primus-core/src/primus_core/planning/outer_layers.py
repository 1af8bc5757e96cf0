"""Planning of the outer layers: what `container` and its like run is `primus` again, planned here as it will be there.

The inner command is planned first, on this machine, so that it is refused before anything starts; its
plan names the run directory and the files that must be seen inside. Then the outer runtime makes a process of it.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import cast

from primus_core import variables
from primus_core.config import submission
from primus_core.config.system import PREFLIGHT, apply_defaults
from primus_core.environment import resolve
from primus_core.environment.flag_lists import FLAG_LISTS, applied
from primus_core.environment.joining import joining
from primus_core.plan.plan import SCHEMA, Plan, PlannedFile, RunPlace, Variable
from primus_core.plan.secret_values import values_in
from primus_core.planning.options import NO_PREFLIGHT, runtime_parser, segment_name, switches_of
from primus_core.planning.planned import Planned
from primus_core.plugins.catalogue import Catalogue
from primus_core.plugins.outer import Cleaning, Elsewhere, OuterCall, OuterPlan, OuterRuntime
from primus_core.request.arguments import Parser, flags_of, parse_segment
from primus_core.request.request import Layer, Request, no_task
from primus_machine import packages
from primus_machine.errors import RequestError, expect
from primus_machine.facts import Facts
from primus_machine.host import UNREAD, HostRoot
from primus_machine.secrets.redaction import redact_words

__all__ = ["INNERMOST", "OF_LAUNCHERS", "clean", "finished", "inner_parser", "is_outer", "parsed", "plan"]

INNERMOST = "direct"
"""What runs inside where the person names no further runtime."""
_MARGIN_S = 5.0
"""An outer layer waits so much longer than the one inside before it kills: that one tidies up, and has the reason."""
OF_LAUNCHERS = {
    *("--nproc-per-node", "--num-processes", "--num-gpus", "--num-machines", "--machine-rank", "--node-rank"),
    *("--master-addr", "--master-port", "--rdzv-endpoint", "--rdzv-backend", "--rdzv-id", "--standalone"),
}
"""Options of torchrun, accelerate and DeepSpeed that neither Slurm nor an engine has."""

PlanInner = Callable[[Request, HostRoot], Planned]


def is_outer(runtime: object) -> bool:
    """Whether a runtime holds another one."""
    return hasattr(runtime, "wrap")


def plan(request: Request, host: HostRoot, catalogue: Catalogue, inner_plan: PlanInner) -> Planned:
    """The plan of `request`, whose first layer is an outer one. `inner_plan` plans what is inside.

    Raises:
        RequestError: one of the layers cannot run inside the other, or anything about them is wrong.
    """
    layer, rest = request.layers[0], request.layers[1:]
    runtime = cast("OuterRuntime", catalogue.runtime(layer.runtime))
    args = parsed(runtime, layer, catalogue)
    if not (request.task or request.replay):
        raise no_task(request.layers, catalogue.names("tasks"))
    rest = _timed(_held(runtime, layer, rest), getattr(args, "rendezvous_timeout", None))
    options = _laid(resolve.from_options(getattr(args, "env", []), host.environ), host)
    names = [word for name in dict.fromkeys(v.name for v in options) for word in ("--env", name)]
    chosen = _preflight(args, runtime, request, catalogue)
    looked = () if not chosen else ("--no-preflight",) if chosen == NO_PREFLIGHT else (f"--preflight={chosen}",)
    inner_request = request._replace(layers=(rest[0]._replace(words=(*names, *looked, *rest[0].words)), *rest[1:]))
    inner = inner_plan(_for_planning(inner_request, args), _there(runtime, args, host, options))
    facts = inner.facts
    if isinstance(runtime, Elsewhere):  # those were of a machine that nobody knows
        facts = facts._replace(host=host, environ=host.environ, hostname=host.hostname())
    copies = _copies(runtime, inner, facts)
    submitted = _submitted(copies, inner.plan.place, host.environ)
    reads, place, elsewhere = (*inner.reads, *inner.plan.loads), inner.plan.place, isinstance(runtime, Elsewhere)
    own = (*submitted, *options, *joining(runtime.name, place, host, reads, elsewhere=elsewhere))
    words = _words(_named(inner_request, inner))
    known = (inner.plan.max_restarts, inner.plan.framework, inner.takes_over)
    call = OuterCall(args, facts, place, words, inner.reads, inner.writes, own, *known)
    wrapped = expect(runtime.wrap(call), OuterPlan, f"the runtime '{runtime.name}'")
    result = _around(inner.plan, runtime.name, wrapped._replace(files=(*wrapped.files, *copies)), own, words)
    return inner._replace(plan=result, facts=facts, switches=_switches(args, request, inner), inner=inner)


def _copies(runtime: OuterRuntime, inner: Planned, facts: Facts) -> tuple[PlannedFile, ...]:
    """Copies of what `inner` was planned from, for nodes that begin later; those of a submitted job have them."""
    if not isinstance(runtime, Elsewhere) or submission.of(facts.host.environ):
        return ()
    from primus_core.runs import submitting

    inner = inner.innermost
    secrets = values_in(inner.plan, facts.host.environ)
    return submitting.files(inner.plan, facts, inner.inputs, inner.hook_folders, secrets)


def _submitted(copies: Sequence[PlannedFile], place: RunPlace, environ: Mapping[str, str]) -> tuple[Variable, ...]:
    """What leads the layers inside to the copies, and what the copies refer to."""
    directory = f"{place.directory}/{submission.FOLDER}"
    if found := submission.of(environ):
        named = found.known["variables"]
    elif copies:
        named = json.loads(copies[-1].text)["variables"]
    else:
        return ()
    return (
        Variable(variables.SUBMITTED, directory, "primus", "copies of the files that the run was planned from"),
        *(Variable(name, value, "submission", "the submitted settings refer to it") for name, value in named.items()),
    )


def _laid(options: Sequence[Variable], host: HostRoot) -> tuple[Variable, ...]:
    """The same; a list of flags with the person's own in it, which the layer inside would take for the option's."""
    environ = applied(host.environ, options)
    return tuple(v._replace(value=environ[v.name]) if v.name in FLAG_LISTS else v for v in options)


def _around(inner: Plan, runtime: str, wrapped: OuterPlan, own: Sequence[Variable], words: tuple[str, ...]) -> Plan:
    """The outer layer's plan: what the run is, it has from the one inside."""
    submits = any(step.kind == "submit" for step in wrapped.steps)
    withheld = wrapped.withheld | (variables.OF_STEPS if submits else frozenset())
    return Plan(
        schema=SCHEMA,
        primus_version=packages.version_of("primus-core"),
        command=(),
        runtime=runtime,
        task=inner.task,
        place=inner.place,
        distributed=inner.distributed,
        environment=resolve.resolve({}, low=(), forced=[v for v in own if v.name not in withheld]),
        steps=wrapped.steps,
        files=wrapped.files,
        requires=wrapped.requires,
        notes=(*wrapped.notes, *(note for note in inner.notes if getattr(note, "about", "") == "words")),
        grace_period_s=inner.grace_period_s + _MARGIN_S,
        python=inner.python,
        scope=inner.scope,
        framework=inner.framework,
        model=inner.model,
        parent=inner.parent,
        continues=inner.continues,
        started_by=inner.started_by,
        loads=inner.loads,
        after_failure=() if submits else inner.after_failure,
        max_restarts=wrapped.max_restarts,
        inner=words,
    )


def finished(planned: Planned, command: tuple[str, ...], environ: Mapping[str, str]) -> Planned:
    """The same, with the command line as it was typed, less its secrets."""
    return planned._replace(plan=planned.plan._replace(command=redact_words(command, values_in(planned.plan, environ))))


def clean(asked: Request, host: HostRoot, catalogue: Catalogue) -> int | None:
    """Clean up by a runtime with `--clean`, and without a task; the exit code. None: this is none."""
    [layer, *inside] = asked.layers
    runtime = catalogue.runtime(layer.runtime)
    if inside or not isinstance(runtime, Cleaning):
        return None
    args = parsed(cast("OuterRuntime", runtime), layer, catalogue)
    return runtime.clean(args, host, dry_run=args.dry_run or asked.dry_run) if args.clean else None


def _preflight(args: argparse.Namespace, runtime: OuterRuntime, request: Request, catalogue: Catalogue) -> str:
    """The option for the layers inside. Before the task itself, the setting of a file for every task does not count."""
    setting = catalogue.system.section(runtime.name).data.get(PREFLIGHT)
    return "" if request.task[:1] == (PREFLIGHT,) and args.preflight == setting else str(args.preflight)


def parsed(runtime: OuterRuntime, layer: Layer, catalogue: Catalogue) -> argparse.Namespace:
    """The options of an outer layer, with the defaults of the system config below them."""
    parser = runtime_parser(runtime, segment_name(layer.segment, layer.runtime))
    passed = apply_defaults(parser, catalogue.system.whole_section(layer.runtime))
    args = parse_segment(parser, layer.words)
    inner = {*flags_of(inner_parser(catalogue))} - {*flags_of(parser)}
    flags = [word.partition("=")[0] for word in layer.words]
    if foreign := [flag for flag in flags if flag.replace("_", "-") in OF_LAUNCHERS]:
        why = "it is an option of torchrun and others; Primus places the ranks of all nodes"
        raise RequestError(f"{parser.segment}: unknown option '{foreign[0]}'", why=why, options=foreign[:1])
    if wrong := [flag for flag in flags if flag in inner]:
        from primus_core.request.former import word_set

        if wrong[0] not in word_set(f"of_{runtime.name}"):
            what = f"{parser.segment}: unknown option '{wrong[0]}'"
            raise RequestError(what, why=f"it is an option of `{INNERMOST}`, which runs inside", options=wrong)
    args.configured = passed
    section = catalogue.system.whole_section(layer.runtime).data
    args.disabled = frozenset(name.replace("_", "-") for name, value in section.items() if value in (None, False))
    args.own = _own(runtime, layer, catalogue)
    if parser.rest and not parser.split_rest:  # who reads the words itself knows which of them say the same
        setattr(args, parser.rest, [*passed, *getattr(args, parser.rest)])
    return args


def inner_parser(catalogue: Catalogue) -> Parser:
    """Return the parser of the runtime that starts the task, inside all others."""
    return runtime_parser(catalogue.runtime(INNERMOST))


def _own(runtime: OuterRuntime, layer: Layer, catalogue: Catalogue) -> argparse.Namespace:
    """The options as a person set them, by file or on the command line: without the defaults of Primus."""
    parser = runtime_parser(runtime, segment_name(layer.segment, layer.runtime))
    apply_defaults(parser, catalogue.system.section(layer.runtime))
    return parse_segment(parser, layer.words)


def _there(runtime: OuterRuntime, args: argparse.Namespace, host: HostRoot, options: Sequence[Variable]) -> HostRoot:
    """The machine where the layer inside will run, as far as it is known."""
    seen = {**host.environ, **{variable.name: variable.value for variable in options}}
    if isinstance(runtime, Elsewhere):
        return HostRoot(UNREAD, {**seen, **runtime.inside(args, seen)})
    return host.with_environ(seen)


def _held(runtime: OuterRuntime, layer: Layer, rest: Sequence[Layer]) -> tuple[Layer, ...]:
    """The layers inside; the innermost one where the person names none."""
    if not rest:
        return (Layer(INNERMOST, (), layer.segment),)
    if rest[0].runtime not in runtime.holds:
        raise RequestError(
            f"segment {rest[0].segment}: '{rest[0].runtime}' cannot run inside '{runtime.name}'",
            why=f"{runtime.name} holds: {', '.join(sorted(runtime.holds))}",
            fix="drop one of the two, or change their order",
            kind="nesting",
            options=[rest[0].runtime],
            where=runtime.name,
        )
    return tuple(rest)


def _timed(layers: tuple[Layer, ...], limit_s: float | None) -> tuple[Layer, ...]:
    """With how long nodes wait for each other, for the innermost layer, which has them meet. Its own word wins."""
    if limit_s is None:
        return layers
    last = layers[-1] if layers[-1].runtime == INNERMOST else Layer(INNERMOST, (), layers[-1].segment)
    outer = layers if last is not layers[-1] else layers[:-1]
    return (*outer, last._replace(words=("--rendezvous-timeout", f"{limit_s:g}", *last.words)))


def _for_planning(inner: Request, args: argparse.Namespace) -> Request:
    """The inner request with the switches of the outer one, which say how to plan."""
    first = inner.layers[0]
    switches = ("--assume-host", args.assume_host) if args.assume_host else ()
    return inner._replace(layers=(first._replace(words=(*switches, *first.words)), *inner.layers[1:]))


def _named(request: Request, inner: Planned) -> Request:
    """With the directory of the run that is replayed: once this run has begun, `latest` is another one."""
    if not inner.replay or "--replay" not in request.task:
        return request
    at = request.task.index("--replay") + 1
    return request._replace(task=(*request.task[:at], inner.replay.saved.directory, *request.task[at + 1 :]))


def _words(inner: Request) -> tuple[str, ...]:
    """The inner command line, without `primus`."""
    flags = ["--debug"] if inner.debug else []
    flags += ["--config", os.path.abspath(inner.config)] if inner.config else []
    if inner.replay:
        force = ["--force"] if inner.force else []
        layers = [word for layer in inner.layers for word in ("--", layer.runtime, *layer.words)]
        return (*flags, "replay", inner.replay, *force, *layers[1:])
    return (*flags, *[word for layer in inner.layers for word in (layer.runtime, *layer.words, "--")], *inner.task)


def _switches(args: argparse.Namespace, request: Request, inner: Planned) -> argparse.Namespace:
    own = switches_of(args, request, None)
    return argparse.Namespace(**{name: getattr(own, name) or value for name, value in vars(inner.switches).items()})
