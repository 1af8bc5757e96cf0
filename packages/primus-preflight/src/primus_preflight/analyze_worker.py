"""The worker of `analyze`: reads the topology of this node, prints it, and draws it.

It runs alone too: `python -m primus_preflight.analyze_worker topology`
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from primus_core import get_logger
from primus_core.errors import MachineError
from primus_core.request.arguments import Parser, parse_segment
from primus_machine import facts, variables
from primus_machine.captures import capture
from primus_machine.files.atomic import write_atomically
from primus_machine.host import HostRoot
from primus_preflight import analyze
from primus_preflight.analyze import PICTURE
from primus_preflight.machine import topology
from primus_preflight.views import picture, tree

__all__ = ["main"]


def main(words: Sequence[str]) -> int:
    """Do what the words ask for. Nodes of one job are alike: only the first one is shown.

    Raises:
        PrimusError: the captured machine cannot be read, or the picture cannot be written.
    """
    parser = Parser(prog="python -m primus_preflight.analyze_worker")
    analyze.declare(parser)
    args = parse_segment(parser, words)
    if args.node_rank:
        return 0
    here = HostRoot()
    found = topology.read(facts.read(capture.read(args.assume_host, here) if args.assume_host else here))
    print(tree.as_json(found) if args.json else tree.as_text(found), flush=True)
    if args.visualize:
        _draw(_file(args.visualize, here), found)
    return 0


def _file(path: str, here: HostRoot) -> str:
    """Where the picture goes; one that nobody named into the run directory, or here where there is none."""
    name = os.path.basename(path)
    return os.path.relpath(os.path.join(here.environ.get(variables.RUN_DIR, ""), name)) if path == PICTURE else path


def _draw(path: str, found: topology.Topology) -> None:
    drawn = picture.as_svg(found) if path.lower().endswith(".svg") else picture.as_html(found)
    try:
        os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
        write_atomically(path, drawn)
    except OSError as error:
        raise MachineError(f"cannot write {path}", why=str(error.strerror), fix="choose another --visualize") from None
    get_logger().info("picture_written", message=f"picture: {path}", path=path)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
