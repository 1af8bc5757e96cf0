"""The worker of `preflight`: runs the checks on this node, leaves their findings, and on node 0 judges all nodes.

It runs alone too: `python -m primus_preflight.worker --host`
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace

from primus_core import get_logger
from primus_core.errors import MachineError, PrimusError
from primus_core.plugins.catalogue import Catalogue
from primus_machine import facts, variables
from primus_machine.captures import capture
from primus_machine.facts import Facts
from primus_machine.host import HostRoot
from primus_machine.units import counted
from primus_preflight import judging, progress, task
from primus_preflight.checks.check import Check, Node, lacking
from primus_preflight.checks.findings import Finding
from primus_preflight.meeting import peers
from primus_preflight.meeting.peers import Meeting, Place
from primus_preflight.verdict import gate, node_report
from primus_preflight.verdict.node_report import FOLDER, NodeReport
from primus_preflight.verdict.provenance import version

__all__ = ["main"]

_QUIET_S = 15.0


def main(words: Sequence[str]) -> int:
    """Do what the words ask for.

    Raises:
        PrimusError: a node is not fit (exit 1), or its state could not be determined (exit 3).
    """
    parser = argparse.ArgumentParser(prog="python -m primus_preflight.worker", description=__doc__, allow_abbrev=False)
    task.declare(parser)
    args = parser.parse_args(words)
    task.behind_links(args)
    if args.action == "report":
        return 0 if args.node_rank else judging.again(args, _run_dir())
    here = HostRoot()
    checks = task.checks(args, facts.read(here), Catalogue.here(here))
    if args.action == "list":
        return 0 if args.node_rank else _list(checks)
    if not args.node_rank and (later := task.deferred(args, facts.read(here), Catalogue.here(here))):
        beginning = f"preflight: not checked at level {args.level}, though {args.thresholds} sets a threshold: "
        get_logger().info("preflight_not_checked", message=f"{beginning}{', '.join(later)}", checks=later)
    try:
        return _checked(args, checks, here)
    except PrimusError as error:
        if args.gate != "warn":
            raise
        message = f"the launch continues (--preflight=warn) after {error}"
        get_logger().warning("preflight_failed", message=message, exit_code=error.exit_code)
        return 0


def _list(checks: Sequence[Check]) -> int:
    names, levels = (max(map(len, texts)) for texts in ([c.name for c in checks], [c.level for c in checks]))
    for check in checks:
        print(f"{check.name:{names}}  {check.level:{levels}}  {check.summary}")
        print(f"{'':{names}}  reads {', '.join(check.reads) or 'the running machine only'}")
    return 0


def _checked(args: argparse.Namespace, checks: Sequence[Check], here: HostRoot) -> int:
    """Look at this node. Before a launch, all nodes end as node 0 says."""
    found = facts.read(capture.read(args.assume_host, here) if args.assume_host else here)
    folder = os.path.join(_run_dir(), FOLDER)
    host = _name(found)
    with _writes(folder):
        call = gate.call(folder) if args.gate and not args.node_rank else ""
    meeting = _met(found, checks, host, _place(args, folder))
    is_cpu = args.cpu or found.environ.get(variables.GPU_MODEL, "").strip().lower() == "none"
    node = Node(found, _run_dir() if found.host.is_here else "", meeting, args.devices, is_cpu)
    own = replace(_looked_at(node, checks, host, args.node_rank), level=args.level, version=version())
    with _writes(folder):
        node_report.write(folder, own)
        if args.node_rank:
            return _followed(args, folder, own, shared="SLURM_NODEID" in here.environ) if args.gate else 0
        gate.answer(folder, host)
        return judging.decided(args, folder, call, gone=meeting.here.absent if meeting and meeting.here else 0)


def _followed(args: argparse.Namespace, folder: str, own: NodeReport, *, shared: bool) -> int:
    """Wait for node 0's verdict. On a console that all nodes share, node 0 says who is missing."""
    with nullcontext() if shared else progress.logged(lambda: f"waiting for node 0's verdict in {folder}", _QUIET_S):
        return gate.follow(folder, own, judging.patience(args, args.level))


@contextmanager
def _writes(folder: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:  # a full disk makes no node unfit
        fix = "free space there, or choose another run directory (PRIMUS_RUN_DIR)"
        raise MachineError(f"preflight: cannot write to {folder}", why=str(error.strerror), fix=fix) from None


def _run_dir() -> str:
    return HostRoot().environ.get(variables.RUN_DIR) or os.getcwd()


def _name(found: Facts) -> str:
    """What the scheduler calls the node: that is what it can leave out."""
    return (found.environ.get("SLURMD_NODENAME", "") if found.host.is_here else "") or found.hostname


def _met(found: Facts, checks: Sequence[Check], host: str, place: Place) -> Meeting | None:
    """What came of meeting the other nodes, where a check needs it."""
    if place.nodes == 1 or not found.host.is_here or not any(check.meets for check in checks):
        return None
    with _logged(lambda: f"meeting {counted(place.nodes - 1, 'other node')}", place.rank):
        return peers.meet(peers.card(found, place.rank, host), place)


def _place(args: argparse.Namespace, folder: str) -> Place:
    """Nodes come to the meeting before they measure themselves, and to a sum after it."""
    times = judging.patience(args, "quick"), judging.patience(args, args.level)
    return Place(folder, args.node_rank, args.nodes, *times, all_pairs=args.level == "full")


def _looked_at(node: Node, checks: Sequence[Check], host: str, node_rank: int) -> NodeReport:
    findings: list[Finding] = []
    at = ""
    with _logged(lambda: at, node_rank):
        for number, check in enumerate(checks, 1):
            at = f"{check.name} ({number} of {len(checks)})"
            found_here = check.findings(node)
            is_lacking = not node.host.is_here and not check.is_captured(node)
            findings += map(_not_captured, found_here) if is_lacking else found_here
    found = node.facts
    return NodeReport(host, tuple(findings), found.gpu_model, len(found.gpus), node_rank, time.time())


def _not_captured(one: Finding) -> Finding:
    is_lacking = one.status == "unknown" and one.cause != "threshold"  # that one does not apply, whatever is read
    return lacking(one) if is_lacking else one


def _logged(what: Callable[[], str], node_rank: int) -> AbstractContextManager[None]:
    return progress.logged(what) if node_rank == 0 else nullcontext()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
