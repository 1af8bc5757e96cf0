"""What each test cost, which failed, and why a test may be skipped (`bounds.toml`): a pytest plugin.

The cost is CPU seconds (user and system) of the test's process, of the children that it waited for, and of all that
run below it (a fork server's ranks, a cluster's jobs). A fixture counts for the test that uses it first, its end for
the test that runs last. Collection, and processes that have lost their parent (containers), are not counted.
"""

from __future__ import annotations

import os
import re
import resource
import tomllib
from collections import defaultdict
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

COMPLETE = "PRIMUS_TEST_COMPLETE"
"""The variable with which a test skipped for a reason that is not listed fails the run, as in CI."""
PART = "PRIMUS_TEST_PART"
"""The variable with the name of the part (`tests.suite`) that this run is."""
FAILED = "PRIMUS_TEST_FAILED"
"""The variable with the file to which a run writes the names of the tests that failed, once it has come to its end."""
FORKS = "PRIMUS_TEST_FORKS"
"""The variable with which the `primus` of a test is a fork, not a new Python: set by `hatch run quick`."""


_TICKS_A_S = os.sysconf("SC_CLK_TCK")


class Bounds:
    """Costs and skips of a run. In each process it measures; in the first one it judges."""

    def __init__(self, file: Path) -> None:
        known = tomllib.loads(file.read_text(encoding="utf-8"))
        self.file = file
        self.test_s, self.file_s = known["cpu_seconds"]["test"], known["cpu_seconds"]["file"]
        here = os.environ.get(PART, "")
        self.failed_file = os.environ.pop(FAILED, "")  # not for what a test runs
        self.failed: dict[str, None] = {}
        rows = [row for row in known.get("skip", ()) if here not in row.get("except", ())]
        self.listed = [re.compile(row["reason"]) for row in rows]
        self.measured = 0.0
        self.costs: defaultdict[str, float] = defaultdict(float)
        self.skips: defaultdict[str, list[str]] = defaultdict(list)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self) -> None:
        """A test begins in this process."""
        self.measured = cpu_seconds()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, Any, Any]:
        """Write on a phase's report what it cost; xdist carries it to the first process."""
        report = yield
        before, self.measured = self.measured, cpu_seconds()
        report.cpu_seconds = max(self.measured - before, 0.0)  # a killed child that nobody waited for no longer counts
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A phase of a test has ended, in whichever process."""
        self.costs[report.nodeid] += getattr(report, "cpu_seconds", 0)
        self._note_failure(report)
        self._note_skip(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A file may be skipped whole, or not be imported."""
        self._note_failure(report)
        self._note_skip(report)

    def _note_failure(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if report.failed:
            self.failed[report.nodeid.partition("@")[0]] = None  # without the group that xdist adds

    def _note_skip(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if not report.skipped:
            return
        why = report.longrepr[2] if isinstance(report.longrepr, tuple) else getattr(report, "wasxfail", "")
        self.skips[why.removeprefix("Skipped: ")].append(report.nodeid)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """A test that is skipped for a reason that is not listed fails the run. Which tests failed is written down."""
        passed = session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
        if hasattr(session.config, "workerinput"):
            return
        if passed and [*self.findings()]:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        if self.failed_file:
            Path(self.failed_file).write_text("".join(f"{test}\n" for test in self.failed), encoding="utf-8")
            costs = sorted(self.costs.items(), key=lambda item: -item[1])
            lines = [f"{cost:8.2f} {where}\n" for where, cost in costs]
            Path(self.failed_file).with_suffix(".costs").write_text("".join(lines), encoding="utf-8")

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Name what may not be skipped, and what costs most."""
        if found := list(self.findings()):
            terminalreporter.section("bounds", red=True)
            terminalreporter.write_line("\n".join([*found, f"The limits, the exceptions and the skips: {self.file}"]))
        if dear := [(cost, where) for where, cost, least in self._measured() if cost >= least]:
            terminalreporter.section("CPU seconds")
            terminalreporter.write_line("\n".join(f"{cost:8.0f}  {where}" for cost, where in sorted(dear)[::-1]))

    def findings(self) -> Iterator[str]:
        """A sentence on each reason to skip that is not listed."""
        if os.environ.get(COMPLETE, "") not in {"", "0"}:
            for reason, tests in self.skips.items():
                if not any(pattern.search(reason) for pattern in self.listed):
                    yield f"SKIPPED {len(tests)} tests, such as {tests[0]}: {reason}. This reason is not listed."

    def _measured(self) -> Iterator[tuple[str, float, float]]:
        """Each test and each file: what it cost, and from where on it is listed."""
        files: defaultdict[str, float] = defaultdict(float)
        for test, cost in self.costs.items():
            files[test.partition("::")[0]] += cost
            yield test, cost, self.test_s
        for file, cost in files.items():
            yield file, cost, self.file_s


def cpu_seconds() -> float:
    """Of this process, of the children that it waited for, and of all processes below it."""
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages) + sum(map(_ticks, _children("self"))) / _TICKS_A_S


def _children(pid: str) -> Iterator[str]:
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:  # the process has ended
        return
    for thread in threads:
        try:
            yield from Path(f"/proc/{pid}/task/{thread}/children").read_text().split()
        except OSError:  # the thread has
            continue


def _ticks(pid: str) -> int:
    """What a process, those below it, and those that they waited for have used."""
    try:
        fields = Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()
    except OSError:  # it has ended
        return 0
    return sum(map(int, fields[11:15])) + sum(map(_ticks, _children(pid)))
