"""Steps that did not end well: which rank failed first, what of it is recorded, and what the console says.

A launch that succeeds never loads this.
"""

from __future__ import annotations

from collections.abc import Callable

from primus_core.contracts.observer import RunEnd
from primus_core.execute.launch import Launch
from primus_core.journal.record import FirstFailure
from primus_core.outcome import closing, failed_lines, first_failure
from primus_core.outcome.failure import reason_in
from primus_core.outcome.missed_checkpoint import describe_missed
from primus_core.outcome.rank_ends import RankEnds
from primus_core.outcome.retry_policy import FailedRank
from primus_core.plan.plan import BEFORE_RANKS, Step
from primus_machine.supervision.program import Ended

__all__ = ["FailedStep"]


class FailedStep:
    """A step that failed or was ended. `printed` gives what it has printed in the launch log."""

    def __init__(
        self, launch: Launch, ended: Ended, step: Step | None, ends: RankEnds | None, printed: Callable[[], str]
    ) -> None:
        self.launch, self.ended, self.step, self.printed = launch, ended, step, printed
        self.first = first_failure.of_step(launch.plan, launch.facts.hostname, ended, step, printed, ends)

    @property
    def exit_code(self) -> int:
        """Return that of the rank which failed first; of a step that was told to end, its own."""
        has_own = self.first and self.step and self.step.ranks and self.ended.exit_code and not self.ended.signal
        return self.first.exit_code if self.first and has_own else self.ended.exit_code

    @property
    def why(self) -> str:
        """Return why the step ended, in words."""
        return self.first.what if self.first else first_failure.why_ended(self.ended)

    @property
    def rank(self) -> FailedRank:
        """Return what decides whether the step is started again."""
        is_rank = self.first and self.step and self.step.ranks
        return FailedRank(self.exit_code if is_rank else 0, bool(self.first and self.first.is_refusal))

    def finish(self, end: Callable[[RunEnd], None]) -> int:
        """Have the end recorded by `end`, and say how the run ended; its exit code."""
        launch, ended, step = self.launch, self.ended, self.step
        code, first = self.exit_code, self.first
        if (first or not ended.signal) and (full := failed_lines.disk_is_full(launch.directory)):
            first = failed_lines.disk_full_failure(first, code, full, launch.plan.distributed.node_rank)
        status = "interrupted" if ended.signal else "failed"
        script = step if step and step.script else None
        why = first_failure.of_script(ended, script) if script else ""
        failure = first.to_record() if first else None
        if script:
            said = why or ": ".join(filter(None, (f"exit code {code}", reason_in(launch.masked(self.printed())))))
            failure = FirstFailure(what=f"{script.name}: {said}", exit_code=code)
        trace, host = (first.traceback, first.host) if first else ("", "")
        if first and step and step.ranks:
            failed_lines.keep_traceback(launch.directory, first.rank, launch.masked(first.traceback))
        missed = ""
        if status == "interrupted":
            missed = describe_missed(launch.plan, killed=ended.killed, hurried=launch.signals.hurry)
        end(RunEnd(status, code, failure=failure, traceback=trace, host=host, reason=missed))
        of_all = step is not None and step.kind in BEFORE_RANKS and launch.plan.place.outer  # on one console
        say = launch.say if (status == "failed" or first) and not of_all else launch.say_once
        if status == "failed":
            log, printed = launch.log, self.printed()
            say(failed_lines.failed(launch.plan, first, step, code, why=why, launch_log=log, printed=printed))
        else:
            lost = f"  lost   {missed}\n" if missed else ""
            say(closing.not_failed(launch.plan, status, launch.seconds, first) + lost)
        return code
