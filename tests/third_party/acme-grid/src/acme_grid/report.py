"""Report on which nodes a run was."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from primus_core.journal import record
from primus_core.request.arguments import Parser, parse_segment
from primus_core.runs.lookup import resolve, workspace
from primus_machine.host import HostRoot


def parser() -> Parser:
    """The command's parser."""
    parser = Parser(prog="primus acme-report", description="Report on which nodes a run was.")
    parser.add_argument("run", metavar="RUN", help="a path, the name of a run or experiment, or latest")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="how to print it (default text)")
    return parser


def run(words: Sequence[str], layer: str) -> int:
    """Print it."""
    args = parse_segment(parser(), words)
    host = HostRoot()
    directory = resolve(args.run, workspace(None, host, layer), host)
    nodes = [record.read(str(path)) for path in sorted(Path(directory, "nodes").glob("*"))]
    rows = [{"node": known.node, "status": known.status} for known in nodes]
    if args.format == "json":
        print(json.dumps(rows))
    else:
        sys.stdout.write("".join(f"{row['node']:<16}{row['status']}\n" for row in rows))
    return 0
