"""Node 0's part: it waits for the others' reports, judges all, and says and writes what it found."""

from __future__ import annotations

import argparse
import gc
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from primus_core import get_logger
from primus_core.errors import MachineError, PrimusError
from primus_core.journal import record
from primus_machine.files.atomic import write_atomically
from primus_machine.host import HostRoot
from primus_machine.secrets.redaction import redact
from primus_machine.units import counted
from primus_preflight.checks.check import Level
from primus_preflight.verdict import clocks, cluster, gate, history, node_report, provenance
from primus_preflight.verdict.cluster import Cluster, Expected
from primus_preflight.verdict.node_report import NodeReport, Unread
from primus_preflight.views import page, report

__all__ = ["again", "decided", "patience"]

_FORMATS: Mapping[str, Callable[[Cluster], str]] = {
    ".html": page.as_html,
    ".json": lambda found: report.as_json(found) + "\n",
    ".md": report.as_markdown,
}
_WAIT_S: Mapping[Level, int] = {"quick": 60, "perf": 300, "full": 3600}
"""For nodes that are slower than node 0: a GPU that hangs is given minutes, and shall be a result."""
_LOOK_EVERY_S, _LOG_EVERY_S = 0.2, 10.0
_NAMED = 8


def patience(args: argparse.Namespace, level: Level) -> float:
    """How long others are waited for, in seconds."""
    return float(_WAIT_S[level] if args.wait is None else args.wait)


def decided(args: argparse.Namespace, folder: str, call: str, gone: int) -> int:
    """Judge those who report to this launch. Before a launch, the others end as node 0 does, whatever the reason is.

    `call`: what node 0 called, before a launch; `gone`: on so many nodes the time was spent already.

    Raises:
        PrimusError: a node is not fit (exit 1), or its state could not be determined (exit 3).
    """
    earlier = gate.earlier(folder)

    def there() -> Sequence[str]:
        return gate.answers(folder, call) if call else gate.fresh(folder, earlier)

    wanted = _waited(args, there, gone)
    reported = set(there())
    reports, unread = _read(folder)
    reports = [one for one in reports if one.host in reported]
    error = _outcome(args, folder, reports, [one for one in unread if one.host in reported], wanted)
    # With all that was ever judged: who is silent now may have reported two attempts ago.
    judged = {**earlier, **{one.host: one.time for one in reports}}
    try:
        gate.write(folder, gate.Verdict.of(error, judged))
    except OSError:
        if not error:
            raise
    return _ended(error)


def again(args: argparse.Namespace, run_dir: str) -> int:
    """Judge the reports in a folder.

    Raises:
        PrimusError: as `decided`.
    """
    wanted = cluster.expected(args.expected_nodes) if args.expected_nodes else Expected()
    return _ended(_outcome(args, os.path.join(run_dir, node_report.FOLDER), *_read(args.folder), wanted))


def _ended(error: PrimusError | None) -> int:
    if error:
        raise error
    return 0


def _waited(args: argparse.Namespace, there: Callable[[], Sequence[str]], gone: int) -> Expected:
    """The nodes that shall report, once they have or the time is over."""
    wanted = cluster.expected(args.expected_nodes) if args.expected_nodes else Expected(count=args.nodes)
    began = logged = time.monotonic()
    while args.nodes > 1 and (left := _lacking(wanted, there())) > gone:
        now = time.monotonic()
        if now - began > patience(args, args.level):
            break
        if now - logged > _LOG_EVERY_S:
            logged = now
            message = f"preflight: waiting for {counted(left, 'report')}, for {now - began:.0f} s"
            get_logger().info("preflight_waiting", message=message, reports=left)
        time.sleep(_LOOK_EVERY_S)
    return wanted


def _lacking(wanted: Expected, there: Sequence[str]) -> int:
    return len(set(wanted.names) - set(there)) if wanted.names else max(0, wanted.count - len(there))


def _read(folder: str) -> tuple[list[NodeReport], list[Unread]]:
    gc.disable()  # hundreds of thousands of findings, and none is let go before the end
    return node_report.read_all(folder)


def _outcome(
    args: argparse.Namespace, folder: str, reports: Sequence[NodeReport], unread: Sequence[Unread], wanted: Expected
) -> PrimusError | None:
    """What is wrong, after all is said and written. A file that could not be written hides no verdict."""
    now = HostRoot().now()
    try:
        compared = _since(args.baseline, [clocks.against(one, now) for one in reports])
    except PrimusError as error:
        return error
    about = provenance.of(reports, _command(os.path.dirname(folder)), now)
    found = replace(cluster.judge(compared, unread, wanted), provenance=about)
    print(report.as_json(found) if args.json else report.as_text(found, brief=bool(args.gate)), flush=True)
    unwritten = _write(args.output, folder, found)
    if not found.exit_code:
        return next(iter(unwritten), None)
    for one in unwritten:
        get_logger().warning("report_not_written", message=str(one))
    return _verdict(found, folder)


def _command(run_dir: str) -> Sequence[str]:
    """As it was typed, with secrets masked: the run's record has it. A worker that was started alone is its own."""
    return record.read(run_dir).command or sys.orig_argv


def _since(paths: Sequence[str], reports: list[NodeReport]) -> list[NodeReport]:
    """The reports, compared with earlier ones of the same nodes."""
    if not paths:
        return reports
    before = history.read(paths)
    if new := history.lacking(reports, before):
        message = f"preflight: the baseline has no report of {_listed(new)}"
        get_logger().info("preflight_without_baseline", message=message, nodes=new)
    return history.compared(reports, before)


def _write(outputs: Sequence[str], folder: str, found: Cluster) -> list[MachineError]:
    """All that can be written; of the rest, why not."""
    room = "free space there, or choose another run directory (PRIMUS_RUN_DIR)"
    summary = os.path.join(folder, "report.md")
    writes = [(path, "choose another --output", partial(_write_report, path, found)) for path in outputs]
    writes += [(summary, room, partial(_write_report, summary, found))]
    writes += [(folder, room, partial(cluster.write_lists, folder, found))]
    failed = []
    for path, fix, write in writes:
        try:
            write()
        except OSError as error:
            failed.append(MachineError(f"cannot write {path}", why=str(error.strerror), fix=fix))
    return failed


def _write_report(path: str, found: Cluster) -> None:
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    write_atomically(path, redact(_FORMATS[os.path.splitext(path)[1].lower()](found)))


def _verdict(found: Cluster, folder: str) -> PrimusError:
    """What the run's record says of it: which nodes, and which checks."""
    wrong, listed = ("fail", "failing") if found.failing else ("unknown", "unknown")
    named = [f"{host} ({_listed(_checks(found, host, wrong))})" for host in found.failing or found.unknown]
    fix = "the report has a fix for each check"
    if found.passing:
        fix += f"; under Slurm, `srun --exclude` takes {folder}/{listed}_nodes.txt"
    if found.failing:
        return PrimusError(f"preflight: not fit to train: {_listed(named)}", fix=fix)
    if not found.unknown:
        fix = (
            "check the output of those nodes; with --expected-nodes and their names, the report lists the missing ones"
        )
    return MachineError(f"preflight: incomplete: {report.headline(found)}{': ' * bool(named)}{_listed(named)}", fix=fix)


def _checks(found: Cluster, host: str, status: str) -> list[str]:
    return list(dict.fromkeys(one.check for one in found.nodes[host] if one.status == status))


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:_NAMED]) + f" and {len(names) - _NAMED} more" * (len(names) > _NAMED)
