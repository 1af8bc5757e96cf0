"""What the checks found, as a table, Markdown, JUnit XML and JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from tabulate import tabulate

from primus_bench.ci.judge import Finding
from primus_bench.report.sheet import as_cell
from primus_machine.text import printable

__all__ = ["FORMS", "Result", "as_json", "as_junit", "as_markdown", "as_table"]


@dataclass(frozen=True, slots=True)
class Result:
    """A check's findings."""

    name: str
    seconds: float
    findings: Sequence[Finding]
    run: str = ""
    log: str = ""

    @property
    def outcome(self) -> str:
        """The worst of them."""
        outcomes = {finding.outcome for finding in self.findings}
        return next((o for o in ("failed", "unknown") if o in outcomes), "passed")


def _rows(results: Sequence[Result]) -> list[tuple[str, str, str, str]]:
    return [(r.name, f.figure, f.outcome, f.says) for r in results for f in r.findings]


def as_table(results: Sequence[Result]) -> str:
    """For a terminal."""
    return str(tabulate(_rows(results), headers=["check", "figure", "outcome", "finding"], disable_numparse=True))


def as_markdown(results: Sequence[Result]) -> str:
    """For the summary of a CI job."""
    rows = [[as_cell(cell) for cell in row] for row in _rows(results)]
    table = tabulate(rows, headers=["check", "figure", "outcome", "finding"], tablefmt="github", disable_numparse=True)
    failed = sum(result.outcome == "failed" for result in results)
    return f"## primus ci: {len(results) - failed} of {len(results)} checks without a failure\n\n{table}\n"


def as_json(results: Sequence[Result]) -> str:
    """For a script."""
    data = [{**asdict(result), "outcome": result.outcome} for result in results]
    return json.dumps({"schema": 1, "checks": data}, indent=1, allow_nan=False) + "\n"


def as_junit(results: Sequence[Result]) -> str:
    """For the test reports of CI systems: a suite a check, a case a figure."""
    suites = Element("testsuites", name="primus ci")
    for result in results:
        count = {o: str(sum(f.outcome == o for f in result.findings)) for o in ("failed", "unknown")}
        suite = SubElement(
            suites, "testsuite", name=result.name, tests=str(len(result.findings)), errors="0",
            failures=count["failed"], skipped=count["unknown"], time=f"{result.seconds:.3f}",
        )  # fmt: skip
        for finding in result.findings:
            case = SubElement(suite, "testcase", classname=result.name, name=printable(finding.figure))
            says = printable(finding.says, "\n")  # XML has no control characters
            if finding.outcome == "failed":
                SubElement(case, "failure", message=says).text = says
            elif finding.outcome == "unknown":
                SubElement(case, "skipped", message=says)
            else:
                SubElement(case, "system-out").text = says
    indent(suites)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + tostring(suites, encoding="unicode") + "\n"


FORMS: Mapping[str, Callable[[Sequence[Result]], str]] = {
    "primus-ci.md": as_markdown,
    "primus-ci.xml": as_junit,
    "primus-ci.json": as_json,
}
"""The files of a session, and what writes them."""
