"""Run trainings and benchmarks, and compare them with golden values."""

from __future__ import annotations

import os
import signal
import sys
from argparse import Namespace
from collections.abc import Sequence
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

from primus_core.errors import MachineError, RequestError, suggestion
from primus_core.request.arguments import Parser, parse_segment
from primus_machine.host import HostRoot
from primus_machine.processes import ignored_signals
from primus_machine.secrets.redaction import redact_words
from primus_machine.units import counted

if TYPE_CHECKING:
    from primus_bench.ci.checks import Check
    from primus_bench.ci.session import Session
    from primus_bench.ci.written import Result

__all__ = ["parser", "run"]

_FILE = "primus-ci.yaml"
_EPILOG = """examples:
  primus ci
  primus ci --dry-run
  primus ci --update
  primus ci benchmarks/nightly.yaml --only quickstart --output reports

The exit code is 1 if a check failed. docs/ci.md has the format of FILE and a workflow for GitHub Actions."""

_EXAMPLE = """
checks:
  gemm:
    run: direct -- bench gemm -M 1024
    compare: {time: 10%}
  training:
    run: direct -- train pretrain --config exp.yaml training.steps=20 debug.seed=1
    compare: {loss: 1%, tokens_per_second: 15%}""".lstrip()
_FIX = f"write {_FILE}, then measure once: primus ci --update; or name another file: primus ci FILE"


def parser() -> Parser:
    """The command's parser."""
    summary = "Run trainings and benchmarks, and compare them with golden values."
    parser = Parser(prog="primus ci", epilog=_EPILOG, description=summary)
    parser.add_argument("file", nargs="?", default=_FILE, metavar="FILE", help=f"the checks (default: {_FILE})")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="run only this check (repeatable)")
    parser.add_argument("--update", action="store_true", help="make what is measured now the golden values")
    parser.add_argument(
        "--output",
        default="output/ci",
        metavar="DIR",
        help="write logs, primus-ci.md, primus-ci.xml (JUnit) and primus-ci.json to DIR (default: output/ci)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    parser.add_argument(
        "--dry-run", action="store_true", help="read the golden values and plan every check, without running it"
    )
    parser.add_argument("--list", action="store_true", help="list the checks without running them")
    return parser


def run(words: Sequence[str], layer: str) -> int:
    """Run the checks, one after the other, and say what they found."""
    args = parse_segment(parser(), words)
    from primus_bench.ci import checks, golden, launch
    from primus_bench.ci.session import Session
    from primus_bench.report.files import alone

    host = HostRoot()
    if args.file == _FILE and not os.path.lexists(_FILE):
        raise RequestError(f"there is no file '{_FILE}'", why=f"it says what to run:\n{_EXAMPLE}", fix=_FIX)
    chosen = _chosen(checks.read(args.file, host.environ), args.only)
    if args.list:
        sys.stdout.writelines(f"{check.name}: primus {' '.join(redact_words(check.words))}\n" for check in chosen)
        return 0
    store = golden.path_of(args.file)
    golden.read(store, host.environ)  # a dry run refuses what the run would
    launch.require_plans(chosen, host.environ)
    if args.dry_run:
        sys.stdout.write(f"{counted(len(chosen), 'check')} can run\n")
        return 0
    with alone(args.output, "another primus ci writes to", "--output"):
        session = Session(host, args.output, golden.read(store, host.environ), chosen)
        _run(session, update=args.update)
        if args.update:
            session.golden.write(store)
            sys.stderr.write(f"primus: wrote {store}\n")
    return _end(args, session.results)


def _run(session: Session, *, update: bool) -> None:
    from primus_bench.ci import written

    for number in {signal.SIGTERM, signal.SIGHUP} - ignored_signals():
        signal.signal(number, _interrupt)
    try:
        session.run(update=update)
    except MachineError:  # a full disk: what is known is shown at least
        sys.stdout.write(written.as_table(session.results) + "\n")
        raise
    except (KeyboardInterrupt, SystemExit):
        session.write(session.interrupted())
        done = f"{len(session.results)} of {counted(len(session.checks), 'check')} ended; their findings are in"
        sys.stderr.write(f"primus: interrupted: {done} {session.folder}\n")
        sys.stderr.write("primus: the golden values are as before\n" * update)
        raise


def _end(args: Namespace, results: Sequence[Result]) -> int:
    from primus_bench.ci import written

    sys.stdout.write(written.as_json(results) if args.json else written.as_table(results) + "\n")
    sys.stderr.write(f"primus: the reports and logs are in {args.output}\n")
    if any(finding.outcome == "unknown" for result in results for finding in result.findings):
        sys.stderr.write("primus: note: figures without a golden value were not compared\n")
    return int(any(result.outcome == "failed" for result in results))


def _chosen(found: Sequence[Check], names: Sequence[str]) -> list[Check]:
    known = [check.name for check in found]
    for name in names:
        if name not in known:
            fix = suggestion(name, known) or "primus ci --list shows them"
            raise RequestError(f"there is no check '{name}'", why=f"known: {', '.join(known)}", fix=fix)
    return [check for check in found if not names or check.name in names]


def _interrupt(number: int, _: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)
