"""Which failure of a step came first, and why a step or a script ended."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from primus_core.contracts import launchers
from primus_core.contracts.launcher import Launcher, Signalled
from primus_core.outcome import failure
from primus_core.outcome.rank_ends import RankEnds
from primus_core.output.console import say
from primus_core.plan.plan import BEFORE_RANKS, Plan, Step
from primus_machine.errors import expect
from primus_machine.supervision.program import Ended

_LISTED = 16
_SLACK_S = 0.5
"""A rank that leaves without a word is seen a moment later."""
_SYMPTOM = re.compile(
    r"(?i)connection (closed|reset|refused|aborted)|closed by (remote )?peer|broken pipe|timed? ?out|gloo|[nr]ccl"
    r"|barrier|heartbeat|remote process|coordination service|UNAVAILABLE|DEADLINE_EXCEEDED"
)
"""What a rank says that has lost another one."""

__all__ = ["of_script", "of_step", "why_ended"]


def of_step(
    plan: Plan, hostname: str, ended: Ended, step: Step | None, launch_log: Callable[[], str], ends: RankEnds | None
) -> failure.Failure | None:
    """The first failure of a step on this node; None: there was none. `launch_log` gives what the step has printed."""
    node, directory = plan.distributed.node_rank, plan.place.directory
    if ended.signal:
        first = _after_signal(failure.recorded(directory, ended.records))
        return (_by_leaving(first, directory, ends) or first) if first and ends else first
    if ended.silent_s:
        return _of_hang(plan, ended, ends)
    launcher = launchers.find(plan.worker.launcher) if plan.worker else None
    is_lone = bool(launcher and not launcher.reports)
    process = None
    if step and step.ranks:
        rank = step.first_rank if is_lone else None
        process = failure.of_process(ended.exit_code, hostname, node, rank, f"{directory}/logs/rank_{rank}.log")
    if is_lone:
        failure.leave_record(directory, process)
    killed = _signalled(launcher, launch_log()) if launcher else ()
    first = failure.first_failure(directory, killed, node, hostname, ended.records) or process
    if first and plan.distributed.nnodes > 1 and node == first.node_rank:
        failure.leave_record(directory, first)
    if ended.exit_code and step and step.kind in BEFORE_RANKS:  # none has started; the error names the node
        reason = first.message.partition("\n")[0] if first else ""
        what = reason or f"{step.kind}: ended with exit code {ended.exit_code}"
        first = failure.Failure(-1, ended.exit_code, what, node_rank=-1, time=time.time())
    return (_by_leaving(first, directory, ends) or first) if ends and ended.exit_code else first


def _after_signal(recorded: Sequence[failure.Failure]) -> failure.Failure | None:
    """Return what failed although the run was told to end. That a rank ends by the signal is no failure."""
    return next((one for one in recorded if not one.is_exit), None)


def _of_hang(plan: Plan, ended: Ended, ends: RankEnds | None) -> failure.Failure:
    """Return what was recorded before the ranks were ended for their silence, and which of them were silent."""
    directory, node = plan.place.directory, plan.distributed.node_rank
    what = why_ended(ended)
    left = [one for one in ends.left if one.time <= ended.cut_at] if ends else []  # later ones left since they had to
    silent = sorted(ends.running.keys() - {one.rank for one in left}) if ends else []
    if left:
        what += f"; rank {left[0].rank} {left[0].describe(directory)}, still running: {_listed(silent)}"
    # What ranks say on being ended is no reason, nor is their exit code.
    before = [one for one in failure.recorded(directory, ended.records) if one.time <= ended.cut_at]
    if before:
        others = [] if left else [rank for rank in silent if rank != before[0].rank]
        return replace(before[0], what=f"{before[0].what}; then {what}{f': {_listed(others)}' if others else ''}")
    return failure.Failure(-1, 1, what, node_rank=node, time=time.time())


def _listed(ranks: Sequence[int]) -> str:
    more = f" and {len(ranks) - _LISTED} more" if len(ranks) > _LISTED else ""
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks[:_LISTED]))}{more}" if ranks else "no rank"


def _by_leaving(first: failure.Failure | None, directory: str, ends: RankEnds) -> failure.Failure | None:
    """Return a rank that left with 0 as the first failure, if the others only noticed that it was gone."""
    left = [one for one in ends.left if not first or not first.time or one.time <= first.time + _SLACK_S]
    if not left:
        return None
    gone = left[0]
    if ends.waited_s:
        then = f"the others waited for {ends.waited_s:.0f} s without output or CPU time"
    elif first and first.rank != gone.rank and _SYMPTOM.search(first.what):
        then = f"rank {first.rank} then failed: {first.what}"
    else:
        return None
    what = f"{gone.describe(directory)} while others were running; {then}"
    return failure.Failure(gone.rank, 1, what, host=gone.host, node_rank=gone.node_rank, time=gone.time)


def _signalled(launcher: Launcher, output: str) -> list[Signalled]:
    try:
        return [expect(one, Signalled, f"the launcher '{launcher.name}'") for one in launcher.signalled(output)]
    except Exception as error:  # of another's code: what the ranks say themselves is known all the same
        what = f"the launcher '{launcher.name}' does not tell which ranks a signal ended"
        say(f"primus: note: {what}: {type(error).__name__}: {error}\n")
        return []


def why_ended(ended: Ended) -> str:
    """Why an attempt ended, where no rank says it."""
    if ended.silent_s:
        return f"hung: no rank printed anything for {ended.silent_s:g} s"
    return f"exit code {ended.exit_code}" if ended.exit_code else ""


def of_script(ended: Ended, script: Step) -> str:
    """Why a script ended, where it could not say so itself."""
    if ended.timed_out:
        return f"took longer than {script.timeout_s:g} s"
    number = ended.exit_code - 128
    return f"ended by {signal.Signals(number).name}" if number in set(signal.Signals) else ""
