"""The end of an outer layer: what the nodes inside recorded of theirs, and why nothing began where none did."""

from __future__ import annotations

import glob
import re
import shlex
from collections.abc import Sequence
from typing import Any

from primus_core.contracts.scheduler import Scheduler
from primus_core.journal import record
from primus_core.journal.record import FirstFailure, RunRecord
from primus_core.multinode.node_ends import Verdict
from primus_core.outcome.failure import last_words
from primus_core.plan.plan import Step
from primus_core.runs.record_writer import RecordWriter
from primus_core.runs.rundir import COMPLETED, short
from primus_machine.errors import MachineError
from primus_machine.files.capped_log import output_of
from primus_machine.supervision.program import Ended

__all__ = ["LayerEnd"]

_SWALLOWED = "the command never started"
_OURS = "primus: "
"""How Primus's own lines begin: where one is in the log, a Primus inside has said what is wrong."""
_WRONG_REQUEST = 2
"""The exit code of many parsers of options."""
_USAGE = re.compile(r"(?im)^\s*usage\b|try .*--help")


class LayerEnd:
    """How the program `main` of a layer ended. `log` has what it printed; `verdict`: of a job's step, why."""

    def __init__(
        self, record: RecordWriter, main: Step, log: str, *, scheduler: Scheduler | None, verdict: Verdict, ended: Ended
    ) -> None:
        self.record, self.plan, self.main, self.log = record, record.plan, main, log
        self.scheduler, self.verdict, self.ended = scheduler, verdict, ended
        self.inside = self.record.inside = self._recorded()

    def _recorded(self) -> list[RunRecord]:
        """The records of the nodes inside, first that of the one that failed first."""
        node = str(self.plan.distributed.node_rank) if self.plan.place.outer else "*"
        paths = sorted(glob.glob(f"{glob.escape(self.record.directory)}/nodes/{node}"))
        found = [known for known in map(record.read, paths) if known and known.runtime != self.plan.runtime]
        return sorted(found, key=lambda known: (known.status != "failed", known.ended or float("inf")))

    def code(self) -> int:
        """Record the end; the exit code.

        Raises:
            MachineError: the program could not start what it was asked for, or something else ran.
        """
        if asked := _asked(self.inside):
            return self._asked_for(asked)
        code, verdict = self.ended.exit_code, self.verdict
        known: dict[str, Any] = {"first_failure": self.inside[0].first_failure} if self.inside else {}
        interrupted = self.ended.signal or verdict.by_others or (not self.inside and self._is_withdrawn())
        status = "interrupted" if interrupted and code else "failed" if code else COMPLETED
        if status == "failed" and self.inside and self.inside[0].exit_code:
            code = self.inside[0].exit_code  # where one node failed, the scheduler ends the others, and reports those
        if status == COMPLETED:
            known.pop("first_failure", None)  # another node has taken over
        if code and verdict.what:
            code = verdict.exit_code or self.ended.exit_code
            is_more = not verdict.is_signal
            known["first_failure"] = verdict.to_record() if is_more else self._failed_while_ending()
            self.record.ended_by_scheduler = is_more and verdict.by_others and not verdict.cancelled
        # Where both see the lock, they see one run directory.
        swallowed = bool(status == COMPLETED and self.main.lock and not self.inside)
        if not swallowed and (status != "failed" or self.inside or verdict.what):
            self.record.end(status, code, **known)
            return code
        return self._not_begun(swallowed=swallowed)

    def _failed_while_ending(self) -> FirstFailure | None:
        """What failed first on nodes that were told to end, as a checkpoint that could not be saved."""
        found = [one.first_failure for one in self.inside if one.status == "interrupted" and one.first_failure]
        return min(found, key=lambda failure: failure.time or float("inf"), default=None)

    def _asked_for(self, asked: RunRecord) -> int:
        """A hook or a script inside has ended the run."""
        follows = (self.inside[0].ended or 0) >= (asked.ended or 0)  # from the stop
        first = None if follows else self.inside[0].first_failure
        code = asked.exit_code or 0
        self.record.end(asked.status, code, first_failure=first, reason=asked.reason)
        return self.ended.exit_code if self.plan.place.outer else code  # further out, others must end

    def _is_withdrawn(self) -> bool:
        """Whether the job was cancelled before it began."""
        return bool(self.scheduler and self.scheduler.printed(output_of(self.log)).is_withdrawn)

    def _not_begun(self, *, swallowed: bool) -> int:
        """The step failed, or did nothing, and no node inside has recorded anything."""
        code = self.ended.exit_code
        spoke = _OURS in output_of(self.log)  # what Primus says inside stands on its own
        refused = bool(self.ended.not_started) or swallowed or self.main.kind == "submit" or not spoke
        refused = refused or code in self.main.refusals
        printed = _SWALLOWED if swallowed else last_words(self.log)
        what = self.ended.not_started or printed or f"ended with exit code {code} before it began the task"
        code = 3 if refused else code
        self.record.end("failed", code, first_failure=FirstFailure(what=f"{self.plan.runtime}: {what}"))
        if refused:
            raise self._swallowed() if swallowed else self._refused()
        return code

    def _refused(self) -> MachineError:
        """What the engine could not do; its own words are on the console already."""
        program, whole = self.main.argv[0], f"see the whole command: {self._typed_with('--dry-run')}"
        code = "" if self.ended.not_started else f" (exit code {self.ended.exit_code})"
        printed = (
            f"see its output above, or in {short(self.log)}" if output_of(self.log).strip() else "it printed nothing"
        )
        return MachineError(
            f"{self.plan.runtime}: {program} could not start the command{code}",
            why=self.ended.not_started or printed,
            fix="\n".join(filter(None, [self.main.advice, self._added(), whole])),
        )

    def _added(self) -> str:
        """Which flags were Primus's own, where the program may have refused one and names none; empty: it has not."""
        names = ", ".join(flag.name for flag in self.main.added if flag.loss)
        if not names or not (self.ended.exit_code == _WRONG_REQUEST or _USAGE.search(output_of(self.log))):
            return ""
        off = f"`{self.plan.runtime}: {{NAME: null}}` in primus.yaml switches it off"
        return f"Primus added {names}: if one of them is refused, {off}"

    def _swallowed(self) -> MachineError:
        return MachineError(
            f"{self.plan.runtime}: {self.main.argv[0]} exited with 0, but {_SWALLOWED}",
            why="something else ran instead, most likely an entrypoint",
            fix="run it without an entrypoint"
            + f": {self._typed_with('--entrypoint', '')}" * ("--entrypoint" not in " ".join(self.plan.command)),
        )

    def _typed_with(self, *words: str) -> str:
        """The command of this layer, with further options of it."""
        runtime, typed = self.plan.runtime, [*self.plan.command]
        at = typed.index(runtime) + 1 if runtime in typed else len(typed)
        return shlex.join([*typed[:at], *words, *typed[at:]])


def _asked(inside: Sequence[RunRecord]) -> RunRecord | None:
    """The node whose hook ended the run; or one of nodes whose scripts all had nothing to launch."""
    if stopped := next((known for known in inside if known.status == "stopped"), None):
        return stopped
    skipped = [known for known in inside if known.status == "skipped"]
    return skipped[0] if skipped and len(skipped) == len(inside) else None
