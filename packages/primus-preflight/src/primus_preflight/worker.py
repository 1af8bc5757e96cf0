"""The worker of `preflight`: runs the checks on this node, leaves their findings, and on node 0 judges all nodes.

It runs alone too: `python -m primus_preflight.worker --host`
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

from primus_core import facts, variables, worker
from primus_core.errors import MachineError, PrimusError
from primus_core.facts import Facts
from primus_core.files import write_atomically
from primus_core.host import HostRoot
from primus_core.machine import capture
from primus_preflight import progress, task
from primus_preflight.checks.check import Check, Level, Node
from primus_preflight.checks.findings import Finding
from primus_preflight.meeting import peers
from primus_preflight.meeting.peers import Meeting, Place
from primus_preflight.verdict import clocks, cluster, gate, history, node_report
from primus_preflight.verdict.cluster import Cluster, Expected
from primus_preflight.verdict.node_report import FOLDER, NodeReport, Unread
from primus_preflight.views import page, report

__all__ = ["main"]

_FORMATS = {
    ".html": page.as_html,
    ".json": lambda found: report.as_json(found) + "\n",
    ".md": report.as_markdown,
}
_WAIT_S: Mapping[Level, int] = {"quick": 60, "perf": 300, "full": 3600}
"""For nodes that are slower than node 0: a GPU that hangs is given minutes, and shall be a result."""
_LOOK_EVERY_S, _TELL_EVERY_S = 0.2, 10.0
_NAMED = 8


def main(words: Sequence[str]) -> int:
    """Do what the words ask for.

    Raises:
        PrimusError: a node is not fit (exit 1), or of one nobody knows (exit 3).
    """
    parser = argparse.ArgumentParser(prog="python -m primus_preflight.worker", description=__doc__, allow_abbrev=False)
    task.declare(parser)
    args = parser.parse_args(words)
    here = HostRoot()
    if args.action == "report":
        return _report(args, args.folder, cluster.expected(args.expected_nodes) if args.expected_nodes else Expected())
    checks = task.checks(args, facts.read(here))
    if args.action == "list":
        return _list(checks) if args.node_rank == 0 else 0
    found = facts.read(capture.read(args.assume_host, here) if args.assume_host else here)
    folder = os.path.join(_run_dir(), FOLDER)
    host = _name(found)
    meeting = _met(found, checks, host, _place(args, folder))
    node = Node(found, _run_dir() if found.host.is_here else "", meeting)
    own = _looked_at(node, checks, host, args.node_rank)
    gone = meeting.here.absent if meeting and meeting.here else 0
    try:
        if args.gate:
            return _gate(args, folder, own, gone)
        node_report.write(folder, own)
        return _decided(args, folder, gone) if args.node_rank == 0 else 0
    except OSError as error:  # a full disk makes no node unfit
        fix = "make room there, or choose another run directory (PRIMUS_RUN_DIR)"
        raise MachineError(f"preflight: cannot write to {folder}", why=str(error.strerror), fix=fix) from None


def _gate(args: argparse.Namespace, folder: str, own: NodeReport, gone: int) -> int:
    """Before a launch: all nodes end as node 0 says."""
    node_report.write(folder, own)
    try:
        if args.node_rank:
            return gate.follow(folder, own, _patience(args, args.level))
        return _decided(args, folder, gone)
    except PrimusError as error:
        if args.gate == "stop":
            raise
        print(f"primus: note: the launch goes on (--preflight=warn) after {error}", file=sys.stderr)
        return 0


def _decided(args: argparse.Namespace, folder: str, gone: int) -> int:
    """Node 0 judges what is new. Before a launch, the others end as it does, whatever the reason is."""
    earlier = gate.earlier(folder)
    wanted = _waited(args, folder, gone, earlier)
    reports, unread = _read(folder)
    fresh = [one for one in reports if one.time != earlier.get(one.host)]
    # With all that was ever judged: who is silent now may have reported two attempts ago.
    judged = {**earlier, **{one.host: one.time for one in fresh}}
    try:
        _judged(args, fresh, unread, wanted)
    except PrimusError as error:
        gate.write(folder, gate.Verdict(error.exit_code, error.what, judged))
        raise
    gate.write(folder, gate.Verdict(0, "", judged))
    return 0


def _run_dir() -> str:
    return str(worker.run_directory()) if variables.RUN_DIR in HostRoot().environ else os.getcwd()


def _list(checks: Sequence[Check]) -> int:
    names, groups = (
        max(len(text) for text in texts) for texts in ([c.name for c in checks], [c.level for c in checks])
    )
    for check in checks:
        print(f"{check.name:{names}}  {check.level:{groups}}  {check.summary}")
        print(f"{'':{names}}  reads {', '.join(check.reads) or 'what only the running machine can say'}")
    return 0


def _name(found: Facts) -> str:
    """What the scheduler calls the node: that is what it can leave out."""
    return (found.environ.get("SLURMD_NODENAME", "") if found.host.is_here else "") or found.hostname


def _met(found: Facts, checks: Sequence[Check], host: str, place: Place) -> Meeting | None:
    """What came of meeting the other nodes, where a check needs it."""
    if place.nodes == 1 or not found.host.is_here or not any(check.meets for check in checks):
        return None
    with _told(lambda: f"meeting {place.nodes - 1} other nodes", place.rank):
        return peers.meet(peers.card(found, place.rank, host), place)


def _looked_at(node: Node, checks: Sequence[Check], host: str, node_rank: int) -> NodeReport:
    findings: list[Finding] = []
    at = ""
    with _told(lambda: at, node_rank):
        for number, check in enumerate(checks, 1):
            at = f"{check.name} ({number} of {len(checks)})"
            findings += check.findings(node)
    found = node.facts
    return NodeReport(host, tuple(findings), found.gpu_model, len(found.gpus), node_rank, time.time())


def _told(what: Callable[[], str], node_rank: int) -> AbstractContextManager[None]:
    return progress.told(what) if node_rank == 0 else nullcontext()


def _place(args: argparse.Namespace, folder: str) -> Place:
    """Nodes come to the meeting before they measure themselves, and to a sum after it."""
    times = _patience(args, "quick"), _patience(args, args.level)
    return Place(folder, args.node_rank, args.nodes, *times, all_pairs=args.level == "full")


def _patience(args: argparse.Namespace, level: Level) -> float:
    return float(_WAIT_S[level] if args.wait is None else args.wait)


def _waited(args: argparse.Namespace, folder: str, gone: int, earlier: Mapping[str, float]) -> Expected:
    """The nodes that shall report, once they have or the time is over. On those `gone` it was spent already.

    What was judged `earlier` is no report.
    """
    wanted = cluster.expected(args.expected_nodes) if args.expected_nodes else Expected(count=args.nodes)
    began = told = time.monotonic()
    while args.nodes > 1 and (left := _lacking(wanted, gate.fresh(folder, earlier))) > gone:
        now = time.monotonic()
        if now - began > _patience(args, args.level):
            break
        if now - told > _TELL_EVERY_S:
            told = now
            print(f"preflight: {left} nodes have not reported after {now - began:.0f} s", file=sys.stderr)
        time.sleep(_LOOK_EVERY_S)
    return wanted


def _lacking(wanted: Expected, there: Sequence[str]) -> int:
    return len(set(wanted.names) - set(there)) if wanted.names else max(0, wanted.count - len(there))


def _report(args: argparse.Namespace, folder: str, wanted: Expected) -> int:
    return 0 if args.node_rank else _judged(args, *_read(folder), wanted)


def _read(folder: str) -> tuple[list[NodeReport], list[Unread]]:
    gc.disable()  # hundreds of thousands of findings, and none is let go before the end
    return node_report.read_all(folder)


def _judged(args: argparse.Namespace, reports: Sequence[NodeReport], unread: Sequence[Unread], wanted: Expected) -> int:
    now = HostRoot().now()
    compared = _since(args.baseline, [clocks.against(one, now) for one in reports])
    found = cluster.judge(compared, unread, wanted)
    print(report.as_json(found) if args.json else report.as_text(found, brief=bool(args.gate)), flush=True)
    _write(args.output, os.path.join(_run_dir(), FOLDER), found)
    if found.exit_code:
        raise _verdict(found)
    return 0


def _since(paths: Sequence[str], reports: list[NodeReport]) -> list[NodeReport]:
    """The reports, compared with earlier ones of the same nodes."""
    if not paths:
        return reports
    before = history.read(paths)
    if new := history.lacking(reports, before):
        more = f" and {len(new) - 8} more" if len(new) > 8 else ""
        print(f"preflight: the baseline knows nothing of {', '.join(new[:8])}{more}", file=sys.stderr)
    return history.compared(reports, before)


def _write(outputs: Sequence[str], folder: str, found: Cluster) -> None:
    cluster.write_lists(folder, found)
    for path in (*outputs, os.path.join(folder, "report.md")):
        try:
            os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
            write_atomically(path, _FORMATS[os.path.splitext(path)[1].lower()](found))
        except OSError as error:
            raise MachineError(f"cannot write {path}", why=str(error.strerror), fix="choose another --output") from None


def _verdict(found: Cluster) -> PrimusError:
    """What the run's record says of it: which nodes, and which checks."""
    wrong, listed = ("fail", "failing") if found.failing else ("unknown", "unknown")
    named = [f"{host} ({_listed(_checks(found, host, wrong))})" for host in found.failing or found.unknown]
    fix = f"the report says what to do for each; `srun --exclude` takes {listed}_nodes.txt beside it"
    if found.failing:
        return PrimusError(f"preflight: not fit to train: {_listed(named)}", fix=fix)
    if not found.unknown:
        fix = "look at what those nodes print; with their names, --expected-nodes says which they are"
    return MachineError(f"preflight: incomplete: {report.headline(found)}{': ' * bool(named)}{_listed(named)}", fix=fix)


def _checks(found: Cluster, host: str, status: str) -> list[str]:
    return list(dict.fromkeys(one.check for one in found.nodes[host] if one.status == status))


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:_NAMED]) + f" and {len(names) - _NAMED} more" * (len(names) > _NAMED)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
