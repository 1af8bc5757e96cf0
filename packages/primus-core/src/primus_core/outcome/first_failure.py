"""Which failure of a step came first, and why a step or a script ended."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

from primus_core.contracts import launchers
from primus_core.contracts.launcher import Launcher, Signalled
from primus_core.outcome import failure
from primus_core.output.console import say
from primus_core.plan.plan import BEFORE_RANKS, Plan, Step
from primus_core.process.supervise import Ended
from primus_machine.errors import expect

__all__ = ["of_script", "of_step", "why_ended"]


def of_step(
    plan: Plan, hostname: str, ended: Ended, step: Step | None, launch_log: Callable[[], str]
) -> failure.Failure | None:
    """The first failure of a step on this node; None: there was none. `launch_log` gives what the step has printed."""
    node, directory = plan.distributed.node_rank, plan.place.directory
    if ended.silent_s:  # what ranks say on being ended is no reason, nor is their exit code
        return failure.Failure(-1, 1, why_ended(ended), node_rank=node, time=time.time())
    launcher = _launcher(plan)
    is_lone = bool(launcher and not launcher.reports)
    process = None
    if step and step.ranks:
        rank = step.first_rank if is_lone else None
        process = failure.of_process(ended.exit_code, hostname, node, rank, f"{directory}/logs/rank_{rank}.log")
    if is_lone and not ended.signal:
        failure.leave_record(directory, process)
    killed = _signalled(launcher, launch_log()) if launcher else ()
    first = failure.first_failure(directory, killed, node, hostname, ended.records) or process
    if ended.exit_code and step and step.kind in BEFORE_RANKS:  # none has started; the error names the node
        reason = first.what.partition(": ")[2].partition("\n")[0] if first else ""
        what = reason or f"{step.kind}: ended with exit code {ended.exit_code}"
        first = failure.Failure(-1, ended.exit_code, what, node_rank=-1, time=time.time())
    return first


def _launcher(plan: Plan) -> Launcher | None:
    return launchers.find(plan.worker.launcher) if plan.worker else None


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
