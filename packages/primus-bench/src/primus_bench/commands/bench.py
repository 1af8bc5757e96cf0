"""Compare results of benchmarks, and apply tuned kernels."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
from argparse import ArgumentTypeError, Namespace
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from primus_bench.contract import GROUP
from primus_core.errors import RequestError, nearest, suggestion
from primus_core.installed import joined
from primus_core.request import former
from primus_core.request.arguments import Parser, parse_segment

if TYPE_CHECKING:
    from primus_bench.comparison.documents import Compared

__all__ = ["parser", "run"]

_ACTIONS = ("compare", "gemm-tune", "history")
_EPILOG = """examples:
  primus bench compare before.json after.json
  primus bench history
  primus bench gemm-tune apply tuning/tune_hipblas_gemm_results.txt

To measure, Primus needs a runtime: primus direct -- bench gemm -M 4096"""
_COMPARE_EPILOG = """examples:
  primus bench compare before.json after.json
  primus bench compare before.json after.json --tolerance 3% --json

A and B are results that `primus direct -- bench gemm -M 4096 --output before.json` and other benchmarks wrote.
A case is slower only if the noise does not explain it: the 95 % interval of the ratio lies beyond the tolerance.
Exit code: 1 if a case of B is slower, wrong or missing."""
_HISTORY_EPILOG = """examples:
  primus bench history
  primus bench history gemm --case 4096x4096 --plot"""


def parser() -> Parser:
    """The command's parser."""
    parser = Parser(
        prog="primus bench", epilog=_EPILOG, description="Compare results of benchmarks, and apply tuned kernels."
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    compare = actions.add_parser("compare", help="Compare two results, beyond the noise.", epilog=_COMPARE_EPILOG)
    compare.add_argument("a", metavar="A", help="the result before")
    compare.add_argument("b", metavar="B", help="the result after")
    compare.add_argument(
        "--tolerance", type=_share, default=0.05, metavar="SHARE", help="accept a slow-down of SHARE (default: 5%%)"
    )
    from primus_bench.tuning import options as tuning

    tune = actions.add_parser("gemm-tune", help="Work with hipBLASLt's tuned kernels.", epilog=tuning.EPILOG)
    tuning.declare_without_gpu(tune)
    history = actions.add_parser("history", help="Show the results of benchmarks over time.", epilog=_HISTORY_EPILOG)
    history.add_argument("benchmark", nargs="?", default="", metavar="BENCHMARK", help="only this benchmark")
    history.add_argument("--case", default="", metavar="TEXT", help="filter by a part of the case's name")
    history.add_argument("--plot", action="store_true", help="plot each case over time")
    history.add_argument(
        "--workspace", metavar="DIR", help="the folder of the runs (default: from primus.yaml, or output)"
    )
    for action in (compare, history):
        action.add_argument("--json", action="store_true", help="print JSON")
    return parser


def _share(text: str) -> float:
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 <= share < 1:
        raise ArgumentTypeError(f"'{text}' is not a share between 0 and 1, such as 5% or 0.05")
    return share


def run(words: Sequence[str], layer: str) -> int:
    """Compare two results, or show the history."""
    if words and words[0] not in _ACTIONS and not words[0].startswith("-"):
        why = f"known: {', '.join(_ACTIONS)}; to measure, Primus needs a runtime"
        benchmarks = [entry.name for entry in joined.of_group(GROUP)]
        found = former.answer("bench", words[0])
        near = "" if words[0] in benchmarks or found.meant else found.fix or suggestion(words[0], _ACTIONS)
        meant = shlex.split(found.meant or nearest(words[0], benchmarks) or words[0])
        fix = near or f"primus direct -- bench {shlex.join([*meant, *words[1:]])}"
        raise RequestError(f"'{words[0]}' is not an action of primus bench", why=why, fix=fix)
    if tuple(words[:2]) == ("gemm-tune", "tune"):
        fix = f"primus direct -- bench {shlex.join(words)}"
        raise RequestError("gemm-tune tune needs a runtime", why="it runs on the GPUs", fix=fix)
    args = parse_segment(parser(), words)
    if args.action == "gemm-tune":
        from primus_bench.tuning import worker  # no other action needs it

        return worker.run(args)
    return _compare(args) if args.action == "compare" else _history(args, layer)


def _result(path: str) -> str:
    """The file of a result; of the directory of a run, the one in it."""
    from primus_bench.history.store import results_in  # sqlite3

    if not os.path.isdir(path):
        return path
    try:
        inside = results_in(path)
    except OSError as error:
        raise RequestError(
            f"{path} cannot be read", why=error.strerror or "", fix="name the file of a result"
        ) from None
    if len(inside) != 1:
        fix = f"name one: {', '.join(inside)}" if inside else "name a file, or the directory of a benchmark"
        raise RequestError(f"{path} has {len(inside)} results", fix=fix)
    return os.path.join(path, inside[0])


def _compare(args: Namespace) -> int:
    from primus_bench.comparison import documents

    first, second = _result(args.a), _result(args.b)
    a, b = documents.read(first, second), documents.read(second, first)
    if a["benchmark"] != b["benchmark"]:
        what = f"{a['benchmark']} cannot be compared with {b['benchmark']}"
        raise RequestError(what, fix="name results of one benchmark")
    found, others = documents.compare(a, b, args.tolerance), documents.differences(a, b)
    if args.json:
        rows = [row.to_dict() for row in found]
        _print_json({"tolerance": args.tolerance, "cases": rows, "differences": others})
    else:
        sys.stdout.write(_table(found) + "".join(f"\nalso: {line}" for line in others) + "\n")
    return int(any(row.is_regression for row in found))


def _print_json(content: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps({"schema": 1, **content}, indent=1) + "\n")


def _history(args: Namespace, layer: str) -> int:
    from primus_bench.history import store, view
    from primus_core.runs.lookup import workspace
    from primus_machine.host import HostRoot

    host = HostRoot()
    place = workspace(args.workspace, host, layer)
    if args.workspace and not os.path.isdir(place):
        raise RequestError(f"there is no folder '{place}'", fix="name the folder of the runs: --workspace DIR")
    points, unreadable = store.read(place, host) if os.path.isdir(place) else ([], [])
    if unreadable:
        sys.stderr.write(f"primus: note: in {place} cannot be read: {', '.join(unreadable)}\n")
    _require_known(args.benchmark, {point.benchmark for point in points})
    found = view.series(points, args.benchmark, args.case)
    if args.json:
        rows = [[point._asdict() for point in one] for one in found]
        _print_json({"series": rows, "unreadable": unreadable})
        return 0
    if not found:
        known = ", ".join(sorted({point.benchmark for point in points})) or "none"
        sys.stdout.write(f"no such results in {place}; benchmarks with results: {known}\n")
        return 0
    width = min(shutil.get_terminal_size().columns, 100)
    named = zip(found, view.names(found), strict=True) if args.plot else ()
    plots = [view.plot(one, name, width, colour=sys.stdout.isatty()) for one, name in named]
    sys.stdout.write("\n".join([view.table(found), *plots]) + "\n")
    return 0


def _require_known(name: str, measured: set[str]) -> None:
    """Refuse the name of a benchmark that is neither installed nor has results."""
    known = sorted({*measured, *(entry.name for entry in joined.of_group(GROUP))})
    if name and name not in known:
        fix = suggestion(name, known) or "primus bench history shows all of them"
        raise RequestError(f"no benchmark is called '{name}'", why=f"known: {', '.join(known)}", fix=fix)


def _table(found: Sequence[Compared]) -> str:
    from tabulate import tabulate

    noted = any(row.note for row in found)
    rows = [(row.name, row.outcome, _ms(row.a), _ms(row.b), *_change(row), *[row.note] * noted) for row in found]
    headers = ["case", "outcome", "A, ms", "B, ms", "time", "95 % interval", *["note"] * noted]
    return str(tabulate(rows, headers=headers, disable_numparse=True))


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e3:.4g}"


def _change(row: Compared) -> tuple[str, str]:
    if row.slowdown is None:
        return "-", "-"
    return f"{row.slowdown.ratio - 1:+.1%}", f"{row.slowdown.low - 1:+.1%} to {row.slowdown.high - 1:+.1%}"
