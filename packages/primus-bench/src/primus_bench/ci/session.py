"""One session of checks: runs each, judges it, and writes the reports."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

from primus_bench.ci import written
from primus_bench.ci.checks import Check
from primus_bench.ci.golden import Store
from primus_bench.ci.judge import Finding, judge
from primus_bench.ci.launch import Ran, launch, places
from primus_bench.ci.written import Result
from primus_bench.report.files import prepare, write_text
from primus_core.journal import record
from primus_machine.errors import printed_in
from primus_machine.facts import read
from primus_machine.host import HostRoot
from primus_machine.system_info import describe
from primus_machine.text import printable

__all__ = ["Session"]

_LONGEST = 500
"""Characters of a line of a log."""


@dataclass
class Session:
    """What all checks share."""

    host: HostRoot
    folder: str
    golden: Store
    checks: Sequence[Check]

    def __post_init__(self) -> None:
        self.machine = _machine(self.host)
        self.results: list[Result] = []
        logs = [path for check in self.checks for path in places(check, self.folder)]
        prepare([*logs, *(f"{self.folder}/{name}" for name in written.FORMS)])

    def run(self, *, update: bool) -> None:
        """All checks, one after the other; after each, the reports have what is known."""
        for check in self.checks:
            self.results.append(self.check(check, update=update))
            self.write(self.results)

    def interrupted(self) -> list[Result]:
        """The results so far, and that the other checks did not end."""
        missing = self.checks[len(self.results) :]
        said = [Finding("run", "failed", "primus ci was ended before this check did")]
        return [*self.results, *(Result(check.name, 0.0, said) for check in missing)]

    def check(self, check: Check, *, update: bool) -> Result:
        """Run it and judge it; with `update`, what it measured becomes golden."""
        began = time.monotonic()
        sys.stderr.write(f"primus: {check.name} is running; its log: {self.folder}/{check.name}.log\n")
        ran = launch(check, self.folder, self.host.environ)
        seconds = time.monotonic() - began
        if ran.measured is None:
            return Result(check.name, seconds, [Finding("run", "failed", _why(check, ran))], ran.run, ran.log)
        if update:
            self.golden.keep(check.name, self.machine, ran.measured)
        golden, known = self.golden.of(check.name, self.machine)
        findings = judge(golden, ran.measured, check.tolerances, ran.unsteady, known=known)
        return Result(check.name, seconds, findings, ran.run, ran.log)

    def write(self, results: Sequence[Result]) -> None:
        """The reports, in every form."""
        for name, form in written.FORMS.items():
            write_text(f"{self.folder}/{name}", form(results))


def _why(check: Check, ran: Ran) -> str:
    if ran.timed_out:
        return f"it was stopped after {check.timeout_s:g} s (timeout); log: {ran.log}"
    if ran.wrong:
        return f"{ran.wrong}; log: {ran.log}"
    return f"exit code {ran.exit_code}: {_reason(ran)}; log: {ran.log}"


def _reason(ran: Ran) -> str:
    """What the run records as its first failure; of one that was refused, the error; else the last line of the log."""
    failed = record.read(ran.run).first_failure if ran.run else None
    if failed and failed.what:
        return printable(failed.what.partition("\n")[0][:_LONGEST])
    with open(ran.log, encoding="utf-8", errors="replace") as file:
        text = file.read()
    lines = [*printed_in(text)[-1:], *text.strip().splitlines()[-1:], "it printed nothing"]
    return printable(lines[0].partition("\n")[0].strip()[:_LONGEST])


def _machine(host: HostRoot) -> str:
    """The name under which speeds are kept: machines with the same one are compared."""
    facts = read(host)
    known = describe(facts)
    if facts.gpus:
        return f"{len(facts.gpus)} x {facts.gpu_model or 'GPU'}"
    return f"{known['cpu_count']} CPUs, {known['cpu_model'] or 'unknown model'}"
