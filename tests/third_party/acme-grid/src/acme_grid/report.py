"""Report on which nodes a run was."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from primus_core.host import HostRoot
from primus_core.request.arguments import Parser, parse_segment
from primus_core.runs.listing import resolve, workspace
from primus_core.runs.saved import metadata


def parser() -> Parser:
    """The command's parser."""
    parser = Parser(prog="primus acme-report", description="Report on which nodes a run was.")
    parser.add_argument("run", metavar="RUN", help="a path, a run's or an experiment's name, or latest")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="how to print it (default text)")
    return parser


def run(words: Sequence[str], layer: str) -> int:
    """Print it."""
    args = parse_segment(parser(), words)
    host = HostRoot()
    directory = resolve(args.run, workspace(None, host, layer), host)
    nodes = [metadata(str(path)) for path in sorted(Path(directory, "nodes").glob("*"))]
    rows = [{"node": known.get("node"), "status": known.get("status")} for known in nodes]
    if args.format == "json":
        print(json.dumps(rows))
    else:
        sys.stdout.write("".join(f"{row['node']:<16}{row['status']}\n" for row in rows))
    return 0
