"""Check whether the nodes are fit to train.

Each node looks at itself and writes what it found into the run directory; node 0 waits for the others and judges.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence

from primus_core.errors import RequestError
from primus_core.plan.plan import Worker
from primus_core.plugins.catalogue import Catalogue
from primus_core.plugins.contracts import Scope, TaskCall, TaskPlan
from primus_core.request.arguments import Parser, whole_number
from primus_machine import variables
from primus_machine.facts import Facts
from primus_machine.gpus.visible import hides_gpus, visible
from primus_preflight import paths
from primus_preflight.checks import catalogue, thresholds
from primus_preflight.checks.check import GROUPS, LEVELS, Check, Level

__all__ = ["PREFLIGHT", "behind_links", "checks", "declare", "deferred"]

SUFFIXES = (".html", ".json", ".md")
_ACTIONS = ("check", "list", "report")


class Preflight:
    """The task `preflight`."""

    name = "preflight"
    scope: Scope = "node"
    epilog = """examples:
  primus direct -- preflight
  primus direct -- preflight --host --network --skip host.governor --output preflight.md
  primus direct -- preflight list
  primus direct -- preflight report output/preflight --expected-nodes node[01-64]

exit codes: 0 all nodes are fit; 1 at least one node is not fit; 2 wrong request;
  3 the state of at least one node could not be determined"""

    def add_arguments(self, parser: Parser) -> None:
        """The options."""
        declare(parser)

    def plan(self, call: TaskCall) -> TaskPlan:
        """One process on each node. What is wrong with the request is said before one starts."""
        args = call.args
        if (args.action == "report") != bool(args.folder):
            raise RequestError(
                "only `report` takes a folder, and it needs one",
                fix="`primus direct -- preflight report FOLDER`: the folder of a preflight, such as output/preflight",
            )
        if args.gate and args.assume_host:
            raise RequestError("preflight before a launch checks this machine", fix="remove assume-host")
        if call.elsewhere:
            catalogue.refuse_unknown(catalogue.gather(call.catalogue), args.only, args.skip, elsewhere=True)
        else:
            _validate(args, call)
        node = call.distributed
        place = ("--node-rank", str(node.node_rank), "--of-nodes", str(node.nnodes))
        needed = ("--devices", str(count)) if (count := _devices(call)) else ()
        files = [path for path in (args.thresholds, args.folder, args.assume_host, *args.baseline) if path]
        name = "preflight" if args.action == "check" else f"preflight_{args.action}"
        run = call.place("", name)  # the link `preflight` leads to a run with reports
        links = _links((*files, args.expected_nodes), run.directory)
        return TaskPlan(
            place=run,
            worker=Worker("primus_preflight.worker", (*call.words, *links, *place, *needed), "single"),
            reads=tuple(files),
        )


def declare(parser: argparse.ArgumentParser) -> None:
    """The options; the worker's are the same."""
    parser.add_argument("action", nargs="?", choices=_ACTIONS, default="check",
                        help="check (default): check each node; list: list checks; report: judge again")  # fmt: skip
    parser.add_argument(
        "folder", nargs="?", default="", metavar="DIR", help="for report: a run directory, or its folder preflight/"
    )
    for group in GROUPS:
        parser.add_argument(f"--{group}", dest="groups", action="append_const", const=group,
                            help=f"run only {group} checks (default: all groups)")  # fmt: skip
    parser.add_argument(
        "--level", choices=LEVELS, default="quick",
        help="quick (default): read settings, seconds; perf: measure, a minute; full: measure longer, many minutes",
    )  # fmt: skip
    parser.add_argument(
        "--only",
        "--tests",
        action="extend",
        type=_patterns,
        default=[],
        metavar="PATTERN",
        help="run only checks that match PATTERN, such as gpu.pcie-*, or one of a list: host.disk,gpu.*",
    )
    parser.add_argument(
        "--skip",
        action="extend",
        type=_patterns,
        default=[],
        metavar="PATTERN",
        help="skip checks that match PATTERN, or one of a list",
    )
    parser.add_argument(
        "--thresholds", default="", metavar="FILE", help="apply the thresholds in FILE over the built-in ones"
    )
    parser.add_argument("--expected-nodes", "--nodes", default="", metavar="N|LIST|FILE",
                        help="nodes that must report: 64, node[01-64], or a file of names")  # fmt: skip
    parser.add_argument("--baseline", action="append", default=[], metavar="DIR|FILE",
                        help="compare each node with these earlier reports (repeatable)")  # fmt: skip
    parser.add_argument("--wait", type=whole_number, metavar="SECONDS",
                        help="wait SECONDS for the other nodes (default: 60; perf: 300; full: 3600)")  # fmt: skip
    parser.add_argument("--cpu", action="store_true", help="check for training on CPUs: a node needs no GPU")
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    parser.add_argument("--output", type=_file, action="append", default=[], metavar="FILE",
                        help=f"also write the report to FILE ({', '.join(SUFFIXES)}; repeatable)")  # fmt: skip
    parser.add_argument(
        "--assume-host", default="", metavar="FILE", help="use a machine captured by `primus env capture`"
    )
    parser.add_argument("--gate", choices=("stop", "warn"), default="", help=argparse.SUPPRESS)  # before a launch
    parser.add_argument("--devices", type=int, default=0, help=argparse.SUPPRESS)  # that the launch needs on each node
    parser.add_argument("--link", nargs=2, action="append", default=[], help=argparse.SUPPRESS)  # and where it led
    parser.add_argument("--node-rank", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--of-nodes", dest="nodes", type=int, default=1, help=argparse.SUPPRESS)


def behind_links(args: argparse.Namespace) -> None:
    """Put what `--link` says in place of the paths that it names."""
    led = dict(args.link)
    for name in ("thresholds", "folder", "assume_host", "expected_nodes"):
        setattr(args, name, led.get(getattr(args, name), getattr(args, name)))
    args.baseline = [led.get(path, path) for path in args.baseline]


def _links(paths: Sequence[str], run_directory: str) -> list[str]:
    """Where paths lead through links now: the launch moves the link `output/preflight` to its own run directory.

    Raises:
        RequestError: a layer around this one has moved it already.
    """
    words = []
    for path in dict.fromkeys(path for path in paths if os.path.exists(path)):
        whole, real = os.path.abspath(path), os.path.realpath(path)
        if _below(real, os.path.realpath(run_directory)) and not _below(whole, run_directory):
            raise RequestError(
                f"'{path}' leads into the directory of this run",
                why="the link was moved to the newest run when this one was launched",
                fix="name the directory of the earlier run: primus runs list",
            )
        if real != whole:
            words += ["--link", path, real]
    return words


def _below(path: str, folder: str) -> bool:
    return os.path.commonpath((path, folder)) == folder


def _devices(call: TaskCall) -> int:
    """How many GPU devices each node must have; 0: nothing says that it must have any.

    GPUS_PER_NODE alone does not: on a machine without GPUs, so many processes train on its CPUs.
    """
    environ = call.facts.environ
    is_requested = environ.get(variables.GPU_MODEL, "").strip().lower() not in ("", "none")
    granted = environ.get("SLURM_GPUS_ON_NODE", "0").strip() not in ("", "0")
    wanted = is_requested or granted or bool(call.facts.gpus)
    return call.distributed.gpus_per_node if wanted and not hides_gpus(call.facts.gpus, environ) else 0


def _file(text: str) -> str:
    if os.path.splitext(text)[1].lower() not in SUFFIXES:
        raise argparse.ArgumentTypeError(f"'{text}' ends in none of {', '.join(SUFFIXES)}")
    return text


def _patterns(text: str) -> list[str]:
    return [one for one in text.split(",") if one] or [text]


def _validate(args: argparse.Namespace, call: TaskCall) -> None:
    """What the worker would find only after it has begun."""
    checks(args, call.facts, call.catalogue)
    if args.expected_nodes:
        from primus_preflight.verdict import cluster

        cluster.expected(args.expected_nodes)
    if args.baseline:
        from primus_preflight.verdict import history

        history.check(args.baseline)
    if args.assume_host:
        from primus_machine import facts
        from primus_machine.captures import capture

        found = facts.read(capture.read(args.assume_host, call.facts.host))
        visible(found.gpus, found.environ)  # of this machine, the plan has asked already
    if call.distributed.nnodes == 1:  # of several, only node 0 would be refused, and the others would wait for it
        for path in args.output:
            paths.check_output("--output", path)
    if args.folder:
        from primus_preflight.verdict import node_report

        node_report.check(args.folder)


def checks(args: argparse.Namespace, facts: Facts, plugins: Catalogue) -> Sequence[Check]:
    """The checks that the options choose, under the site's thresholds."""
    level = LEVELS[-1] if args.action == "list" else args.level
    return _up_to(level, args, facts, plugins)


def deferred(args: argparse.Namespace, facts: Facts, plugins: Catalogue) -> Sequence[str]:
    """Checks with a threshold of the site's that are of a higher level than this one."""
    if not args.thresholds:
        return ()
    asked = {check.name for check in checks(args, facts, plugins)}
    later = _up_to(LEVELS[-1], args, facts, plugins)
    return [check.name for check in later if check.rule.is_explicit and check.name not in asked]


def _up_to(level: Level, args: argparse.Namespace, facts: Facts, plugins: Catalogue) -> Sequence[Check]:
    found = catalogue.gather(plugins)
    if args.thresholds:
        found = thresholds.with_site(found, args.thresholds, facts.environ)
    return catalogue.chosen(found, args.groups or (), level, args.only, args.skip)


PREFLIGHT = Preflight()
