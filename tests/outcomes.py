"""How the tests of a run came out: a pytest plugin that writes down which failed and what each cost, for `tests.suite`.

A test skipped for a reason that `skips.toml` does not list fails a run that must be complete. The cost is seconds.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

COMPLETE = "PRIMUS_TEST_COMPLETE"
"""The variable with which a test skipped for a reason that is not listed fails the run, as in CI."""
PART = "PRIMUS_TEST_PART"
"""The variable with the name of the part (`tests.suite`) that this run is."""
FAILED = "PRIMUS_TEST_FAILED"
"""The variable with the file to which a run writes the names of the tests that failed, once it has come to its end."""


class Outcomes:
    """Failures, costs and skips. Each process has one; the first gets the reports of all."""

    def __init__(self, skips: Path) -> None:
        here = os.environ.get(PART, "")
        rows = tomllib.loads(skips.read_text(encoding="utf-8"))["skip"]
        self.skips_file = skips
        self.listed = [re.compile(row["reason"]) for row in rows if here not in row.get("except", ())]
        self.failed_file = os.environ.pop(FAILED, "")  # not for what a test runs
        self.failed: dict[str, None] = {}
        self.costs: defaultdict[str, float] = defaultdict(float)
        self.skips: defaultdict[str, list[str]] = defaultdict(list)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A phase of a test has ended, in whichever process. xdist adds `@group` to the name."""
        self.costs[report.nodeid.partition("@")[0]] += report.duration
        self._note(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A file may be skipped whole, or not be imported."""
        self._note(report)

    def _note(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if report.failed:
            self.failed[report.nodeid.partition("@")[0]] = None
        if report.skipped:
            why = report.longrepr[2] if isinstance(report.longrepr, tuple) else getattr(report, "wasxfail", "")
            self.skips[why.removeprefix("Skipped: ")].append(report.nodeid)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail a run whose tests passed, if one was skipped that may not be."""
        if hasattr(session.config, "workerinput"):
            return
        passed = session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
        if passed and any(self.findings()):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        if self.failed_file:
            file = Path(self.failed_file)
            file.write_text("".join(f"{test}\n" for test in self.failed), encoding="utf-8")
            lines = [f"{cost:.2f} {test}\n" for test, cost in self.costs.items()]
            file.with_suffix(".costs").write_text("".join(lines), encoding="utf-8")

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Name them."""
        if found := list(self.findings()):
            terminalreporter.section("skips", red=True)
            terminalreporter.write_line("\n".join([*found, f"The reasons that are listed: {self.skips_file}"]))

    def findings(self) -> Iterator[str]:
        """Yield a sentence on each reason to skip that is not listed."""
        if os.environ.get(COMPLETE, "") in {"", "0"}:
            return
        for reason, tests in self.skips.items():
            if not any(pattern.search(reason) for pattern in self.listed):
                yield f"SKIPPED {len(tests)} tests, such as {tests[0]}: {reason}. This reason is not listed."
