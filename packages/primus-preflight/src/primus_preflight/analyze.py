"""Show how the GPUs, CPUs and network adapters of a node are connected."""

from __future__ import annotations

import argparse
import os

from primus_core.errors import RequestError
from primus_core.plan.plan import Worker
from primus_core.plugins.contracts import Scope, TaskCall, TaskPlan
from primus_core.request.arguments import Parser
from primus_preflight import paths

__all__ = ["ANALYZE", "PICTURE", "declare"]

PICTURE = "<run>/topology.svg"
"""What `--visualize` alone means: a file in the run directory, which the worker knows."""
_PICTURES = (".svg", ".html")
_ACTIONS = ("topology",)


class Analyze:
    """The task `analyze`."""

    name = "analyze"
    scope: Scope = "node"
    epilog = """examples:
  primus direct -- analyze topology
  primus direct -- analyze topology --visualize
  primus direct -- analyze topology --visualize node.svg
  primus direct -- analyze topology --assume-host node.tar.gz --json"""

    def add_arguments(self, parser: Parser) -> None:
        """The options."""
        declare(parser)

    def plan(self, call: TaskCall) -> TaskPlan:
        """One process on each node, of which the first one speaks."""
        if not call.args.action:
            raise RequestError("`analyze` needs to know what", fix="one of: analyze topology")
        if not call.elsewhere:
            _validate(call.args, call)
        rank = ("--node-rank", str(call.distributed.node_rank))
        return TaskPlan(
            place=call.place("", "analyze"),
            worker=Worker("primus_preflight.analyze_worker", (*call.words, *rank), "single"),
            reads=(call.args.assume_host,) if call.args.assume_host else (),
        )


def _validate(args: argparse.Namespace, call: TaskCall) -> None:
    """What the worker would find only after it has begun."""
    if args.assume_host:
        from primus_machine.captures import capture

        capture.read(args.assume_host, call.facts.host)
    if args.visualize not in (None, PICTURE) and not call.distributed.node_rank:
        paths.check_output("--visualize", args.visualize)


def declare(parser: argparse.ArgumentParser) -> None:
    """The options; the worker's are the same."""
    parser.add_argument("action", nargs="?", choices=_ACTIONS, help="what to show")
    parser.add_argument("--visualize", type=_picture, nargs="?", const=PICTURE, metavar="FILE",
                        help=f"also draw a picture ({', '.join(_PICTURES)}; default: {PICTURE})")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    parser.add_argument(
        "--assume-host", default="", metavar="FILE", help="use a machine captured by `primus env capture`"
    )
    parser.add_argument("--node-rank", type=int, default=0, help=argparse.SUPPRESS)


def _picture(text: str) -> str:
    if os.path.splitext(text)[1].lower() not in _PICTURES:
        raise argparse.ArgumentTypeError(f"'{text}' does not end in {' or '.join(_PICTURES)}")
    return text


ANALYZE = Analyze()
