"""Show the detected hardware and the environment variables of runs: show, explain, capture."""

from __future__ import annotations

import json
import os
import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from primus_core.commands.env_view import listing, machine, named_rows, rows, table
from primus_core.config.system import apply_defaults
from primus_core.environment import placement, resolve
from primus_core.environment.of_machine import of_machine
from primus_core.environment.profile_files import Profile
from primus_core.installed import homes
from primus_core.plan.plan import Variable
from primus_core.planning.options import runtime_parser
from primus_core.plugins.catalogue import Catalogue
from primus_core.plugins.contracts import Described
from primus_core.request.arguments import Parser, parse_segment
from primus_machine import packages
from primus_machine.captures.assumed import assume_host
from primus_machine.errors import PrimusError, RequestError, suggestion
from primus_machine.facts import Facts, read
from primus_machine.host import HostRoot
from primus_machine.secrets.redaction import redact, secret_values

__all__ = ["parser", "run"]

_EPILOG = """examples:
  primus env show
  primus env explain NCCL_IB_HCA
  primus env capture -o node.tar.gz"""
_SHOW_EPILOG = """examples:
  primus env show
  primus env show --config exp.yaml --env NCCL_DEBUG=INFO
  primus env show --assume-host node.tar.gz --framework megatron
  primus env show --assume-host MI300X --json

environment: NNODES NODE_RANK MASTER_ADDR PRIMUS_GPU_MODEL (=none: no profile) PRIMUS_DETERMINISTIC (=1)"""
_EXPLAIN_EPILOG = """examples:
  primus env explain
  primus env explain NCCL_IB_GID_INDEX NCCL_IB_HCA
  NNODES=2 MASTER_ADDR=node1 primus env explain --framework megatron

precedence: --env K=V > --env FILE > hooks and patches > your environment > env: of the experiment > the backend
> the network and the GPU profile > base. For XLA_FLAGS, this holds for each flag.
Hooks and backends set variables when a run is planned: see --dry-run."""
_CAPTURE_EPILOG = """examples:
  primus env capture -o node.tar.gz
  primus env show --assume-host node.tar.gz"""


class _Found(NamedTuple):
    """A machine, and the environment that a run gets on it."""

    facts: Facts
    chain: tuple[Profile, ...]
    environ: Mapping[str, str]
    """The person's, with `--env` on top."""
    variables: tuple[Variable, ...]
    notes: tuple[str, ...]


def parser() -> Parser:
    """The command's parser."""
    parser = Parser(
        prog="primus env",
        epilog=_EPILOG,
        description="Show the detected hardware and the environment variables of runs.",
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    show = actions.add_parser(
        "show", help="Show what is detected on this machine, and the variables of a run.", epilog=_SHOW_EPILOG
    )
    explain = actions.add_parser(
        "explain", help="Show why each variable has its value, and what it overrides.", epilog=_EXPLAIN_EPILOG
    )
    explain.add_argument("names", nargs="*", metavar="NAME", help="show only these variables")
    for action in (show, explain):
        _add_options(action)
    packed = actions.add_parser("capture", help="Write this machine's description to a file.", epilog=_CAPTURE_EPILOG)
    packed.add_argument("-o", "--output", required=True, metavar="FILE", help="write to FILE, such as node.tar.gz")
    packed.add_argument("--force", action="store_true", help="overwrite FILE if it exists")
    return parser


def _add_options(parser: Parser) -> None:
    parser.add_argument(
        "--assume-host",
        metavar="FILE|GPU",
        default="",
        help="use a machine captured by `primus env capture`, or with 8 GPUs of a model",
    )
    parser.add_argument("--profile", metavar="FILE", default="", help="apply this GPU profile over the detected one")
    parser.add_argument("--env", action="append", default=[], metavar="K=V|FILE", help="set a variable (repeatable)")
    parser.add_argument("--framework", metavar="NAME", default="", help="add the variables for this framework")
    parser.add_argument("--config", metavar="FILE", default="", help="add env: and the framework of this experiment")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(words: Sequence[str], layer: str) -> int:
    """Do one of the three."""
    args = parse_segment(parser(), words)
    args.layer = layer
    return {"show": _show, "explain": _explain, "capture": _capture}[args.action](args)


def _show(args: Namespace) -> int:
    found = _find(args, HostRoot())
    if args.json:
        from primus_machine.system_info import describe

        about = {"profile": [profile.origin for profile in found.chain], **describe(found.facts)}
        return _say(json.dumps({**about, "variables": rows(found.variables), "notes": found.notes}, indent=1), found)
    seen = machine(found.facts, found.chain, found.notes, assumed=bool(args.assume_host))
    return _say(f"{seen}\n\n{listing(found.variables)}", found)


def _explain(args: Namespace) -> int:
    found = _find(args, HostRoot(), families=True)
    variables = named_rows(found.variables, args.names, found.environ) if args.names else found.variables
    if args.json:
        return _say(json.dumps({"variables": rows(variables), "notes": found.notes}, indent=1), found)
    notes = "".join(f"note: {note}\n" for note in found.notes)
    return _say(notes + table(variables, _width()), found)


def _capture(args: Namespace) -> int:
    if os.path.lexists(args.output) and not args.force:
        raise RequestError(f"'{args.output}' is there already", fix="name another file, or add --force")
    from primus_machine.captures import capture

    host = HostRoot()
    capture.write(host, args.output, _reads(Catalogue.here(host, args.layer)), packages.version_of("primus-core"))
    facts = read(host)
    ports = len(facts.network.ports)
    sys.stdout.write(
        f"{args.output}: GPUs {facts.physical_gpus}, network ports {ports}, bytes {os.path.getsize(args.output)}\n"
        "It has the text files that detection and checks read. Serial numbers, host name and network addresses were\n"
        f"replaced.\nUse it on any machine: primus env show --assume-host {args.output}\n"
    )
    return 0


def _reads(catalogue: Catalogue) -> list[str]:
    """What the preflight checks of packages read. One that cannot be loaded is left out, with a note."""
    reads: list[str] = []
    for plugin in catalogue.of("checks"):
        try:
            reads += (pattern for check in plugin.load()() for pattern in check.reads)
        except PrimusError as error:
            sys.stderr.write(f"note: the capture does not contain what some checks read: {error.what}\n")
    return reads


def _say(text: str, found: _Found) -> int:
    hidden = {f"{number}_SECRET": v.value for number, v in enumerate(found.variables) if v.secret}
    sys.stdout.write(redact(text, secret_values({**found.environ, **hidden})).rstrip("\n") + "\n")
    return 0


def _width() -> int:
    try:
        return os.get_terminal_size(1).columns
    except OSError:
        return 200  # a file, or a pager that can scroll


def _find(args: Namespace, here: HostRoot, *, families: bool = False) -> _Found:
    """The layers of a run's environment, as planning lays them, as far as no task is needed to know them."""
    facts = assume_host(args.assume_host, here)
    catalogue = Catalogue.here(here, args.layer)
    settings = _direct(catalogue)
    options = resolve.from_options([*settings.env, *args.env], facts.environ)
    environ = {**facts.environ, **{variable.name: variable.value for variable in options}}
    framework, given = _experiment(args.config, environ, catalogue)
    framework = _known(args.framework or framework, catalogue)
    place, forced = placement.resolve(facts, environ)
    file = args.profile or settings.profile or catalogue.system.profile
    seen = {**{variable.name: variable.value for variable in given}, **environ}
    found = of_machine(facts, place, framework=framework, profile_file=file, environ=seen)
    variables = resolve.resolve(
        facts.environ, low=(*found.variables, *given), forced=forced, options=options, families=families
    )
    return _Found(facts, found.chain, environ, variables, found.notes)


def _direct(catalogue: Catalogue) -> Namespace:
    """The options of `primus direct` that primus.yaml sets: a run gets their variables and profile, too."""
    parser = runtime_parser(catalogue.runtime("direct"))
    apply_defaults(parser, catalogue.system.section("direct"))
    return parse_segment(parser, [])


def _experiment(path: str, environ: Mapping[str, str], catalogue: Catalogue) -> tuple[str, tuple[Variable, ...]]:
    """The framework of an experiment, and what its `env:` sets."""
    if not path:
        return "", ()
    task = catalogue.find("tasks", "train").load()
    return task.environment(path, environ) if isinstance(task, Described) else ("", ())


def _known(framework: str, catalogue: Catalogue) -> str:
    known = sorted({*homes.names("backends"), *catalogue.names("backends")})
    if framework and framework not in known:
        raise RequestError(
            f"unknown framework '{framework}'",
            why=f"known: {', '.join(known)}",
            fix=suggestion(framework, known) or "install the package of its backend",
        )
    return framework
