"""`primus stop RUN`: end a run, wherever it was started from."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Sequence
from typing import Any

from primus_core.arguments import Parser, parse_segment
from primus_core.errors import MachineError
from primus_core.host import HostRoot
from primus_core.runs.listing import resolve
from primus_core.runs.saved import GOING, is_alive, metadata, state

__all__ = ["parser", "run"]

_WORKSPACE = "output"
_POLL_S = 0.1
_EPILOG = """examples:
  primus stop latest
  primus stop quickstart --timeout 120

Its ranks get SIGTERM, and SIGKILL after the run's own grace period.
RUN is a path, a run's name, an experiment's name (its newest run), or `latest`."""


def parser() -> Parser:
    """The command's parser."""
    parser = Parser(prog="primus stop", epilog=_EPILOG, description="End a run that goes on.")
    parser.add_argument("run", metavar="RUN", help="a path, a run's or an experiment's name, or latest")
    parser.add_argument(
        "--timeout", type=float, default=60.0, metavar="SECONDS", help="how long to wait for its end (default: 60)"
    )
    parser.add_argument("--workspace", metavar="DIR", help=f"where runs are kept (default: {_WORKSPACE})")
    return parser


def run(words: Sequence[str]) -> int:
    """Send the signal, and wait for the end. A run that has ended is no error: it may just have done so."""
    args = parse_segment(parser(), words)
    host = HostRoot()
    directory = resolve(args.run, args.workspace or _WORKSPACE, host)
    known, stands = metadata(directory), state(directory, host)
    if stands not in GOING:
        sys.stderr.write(f"primus: {directory} does not run: it is {stands}\n")
        return 0
    _signal(directory, known, host)
    deadline = time.monotonic() + args.timeout
    while is_alive(known, host) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    if is_alive(known, host):
        raise MachineError(
            f"{directory} did not end in {args.timeout:g} s", why=f"process {known['pid']} is still there",
            fix=f"wait, or end it by force: kill -9 {known['pid']}",
        )  # fmt: skip
    sys.stderr.write(f"primus: {directory}: {state(directory, host)}\n")
    return 0


def _signal(directory: str, known: dict[str, Any], host: HostRoot) -> None:
    where = known.get("host")
    if where != host.hostname():
        raise MachineError(
            f"{directory} runs on {where}, and this is {host.hostname()}", fix=f"ssh {where} primus stop {directory}"
        )
    try:
        os.kill(known["pid"], signal.SIGTERM)
    except ProcessLookupError:  # it ended in this very moment
        pass
    except PermissionError:
        raise MachineError(f"{directory} is a run of {known.get('user')}", fix="ask them, or become them") from None
