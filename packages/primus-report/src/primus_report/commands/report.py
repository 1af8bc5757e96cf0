"""Write a report of runs, or of a workspace: metrics, charts, where the time went, and advice."""

from __future__ import annotations

import math
import os
import sys
from argparse import ArgumentTypeError, Namespace
from collections.abc import Callable, Sequence

from primus_core.errors import RequestError
from primus_core.request.arguments import Parser, parse_segment
from primus_core.runs.lookup import resolve, workspace
from primus_machine.host import HostRoot
from primus_machine.secrets.redaction import secret_values

__all__ = ["parser", "run"]

_MOST_RUNS = 50
_EPILOG = """examples:
  primus report latest -o report.html
  primus report quickstart --price 2.50 -o report.html -o report.json
  primus report small_2026_11_21_101526 small_2026_11_21_153012 -o compared.html
  primus report latest
  primus report latest --json
  primus report --workspace /shared/runs -o fleet.html

RUN is a path, a run's name, an experiment's name or a job's number (its newest run), or `latest`.
Without RUN, --workspace DIR reports on all runs in DIR."""


def parser() -> Parser:
    """The command's parser."""
    parser = Parser(prog="primus report", epilog=_EPILOG, description="Write a report of runs.")
    parser.add_argument("runs", nargs="*", metavar="RUN", help="the run, or several to compare")
    parser.add_argument("-o", "--output", action="append", default=[], metavar="FILE",
                        help="write to FILE, .html, .md or .json (repeatable; default: stdout)")  # fmt: skip
    parser.add_argument("--price", type=_price, metavar="AMOUNT", help="show the cost at this price per GPU hour")
    parser.add_argument(
        "--workspace",
        metavar="DIR",
        help="the folder of the runs (default: from primus.yaml, or output); without RUN: report on all of them",
    )
    parser.add_argument("--force", action="store_true", help="overwrite FILE even if it is not a report")
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def _price(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not (math.isfinite(found) and found >= 0):
        raise ArgumentTypeError(f"'{text}' is not a price: write a number, such as 2.50")
    return found


def run(words: Sequence[str], layer: str) -> int:
    """Read the runs, and write the report."""
    args = parse_segment(parser(), words)
    from primus_report.writers import files

    files.check(args.output, force=args.force)
    host = HostRoot()
    forms = _of_runs(args, host, layer) if args.runs else _of_workspace(args, host)
    for path in args.output:
        files.write(path, forms)
        sys.stderr.write(f"primus: wrote {path}\n")
    if args.json or not args.output:
        sys.stdout.write(forms[".json" if args.json else ".md"]().rstrip("\n") + "\n")
    return 0


def _of_workspace(args: Namespace, host: HostRoot) -> dict[str, Callable[[], str]]:
    if args.workspace is None:
        raise RequestError(
            "the following arguments are required: RUN",
            why="without RUN, the report is about a workspace, which --workspace names",
            fix="name a run: `latest` is the newest one, `primus runs list` shows all; or add --workspace DIR",
        )
    if not os.path.isdir(args.workspace):
        raise RequestError(f"there is no folder '{args.workspace}'", fix="give the folder that holds the runs")
    from primus_report.figures import fleet
    from primus_report.writers import forms
    from primus_report.writers.shown import redacted

    found = fleet.read(args.workspace, host, args.price)
    return forms.of_fleet(redacted(found, secret_values(host.environ)))


def _of_runs(args: Namespace, host: HostRoot, layer: str) -> dict[str, Callable[[], str]]:
    from primus_report.figures import report
    from primus_report.writers import forms
    from primus_report.writers.shown import redacted

    if len(args.runs) > _MOST_RUNS:
        raise RequestError(
            f"{len(args.runs)} runs are too many for one page",
            why=f"it holds {_MOST_RUNS} at most",
            fix="name fewer runs",
        )
    place = workspace(args.workspace, host, layer)
    directories = dict.fromkeys(resolve(name, place, host) for name in args.runs)
    found = report.read(tuple(directories), host, args.price)
    return forms.of_runs(redacted(found, secret_values(host.environ)))
