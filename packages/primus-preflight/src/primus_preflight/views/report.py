"""The verdict for people and programs: as text for a terminal, as Markdown, as JSON. What is wrong comes first."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from primus_machine.files import plain_json
from primus_machine.units import counted
from primus_preflight.checks.check import AGAIN, LACKING
from primus_preflight.checks.findings import Finding, Status
from primus_preflight.verdict.cluster import Cluster

__all__ = ["Row", "as_json", "as_markdown", "as_text", "counts", "expected", "headline", "listed", "rows", "skipped"]

SCHEMA = 1
_ORDER: Mapping[Status, int] = {"fail": 0, "unknown": 1, "warn": 2}
"""What is shown row by row. A skip is shown by its reason; of passes only the number."""
_WORDS: Mapping[Status, str] = {
    "pass": "passed",
    "fail": "failed",
    "unknown": "unknown",
    "warn": "warning",
    "skip": "skipped",
}
_LISTED = 8


@dataclass(slots=True)
class Row:
    """One thing that is wrong, wherever it is."""

    finding: Finding
    hosts: dict[str, None] = field(default_factory=dict)
    subjects: dict[str, None] = field(default_factory=dict)

    @property
    def fix(self) -> str:
        """As the first of the nodes has it; a list of nodes that it gives to Slurm names all."""
        first = next(iter(self.hosts), "")
        return self.finding.fix.replace(f"--exclude={first}", f"--exclude={','.join(self.hosts)}")


def rows(cluster: Cluster) -> list[Row]:
    """The same finding of many devices and nodes is one row."""
    merged: dict[tuple[str, ...], Row] = {}
    for host, found in cluster.nodes.items():
        for one in found:
            if one.status in _ORDER:
                row = merged.setdefault((one.check, one.status, one.measured, one.expected, one.why), Row(one))
                row.hosts[host] = row.subjects[one.subject] = None
    return sorted(merged.values(), key=lambda row: _ORDER[row.finding.status])


def listed(names: Mapping[str, None]) -> str:
    """The first of them, and how many there are besides."""
    some = [name for name in names if name]
    return ", ".join(some[:_LISTED]) + (f" and {len(some) - _LISTED} more" if len(some) > _LISTED else "")


def expected(one: Finding) -> str:
    """In its unit; empty: nobody says."""
    return one.expected and f"{one.expected} {one.unit}".rstrip()


def _measured(one: Finding) -> str:
    unit = f" {one.unit}" * bool(one.unit and not one.measured)
    value = one.amount or "not measured"
    return f"{value}; expected {one.expected}{unit}" if one.expected else value


def headline(cluster: Cluster) -> str:
    """One sentence."""
    parts = [("fit", cluster.passing), ("not fit", cluster.failing), ("unknown", cluster.unknown)]
    counts = [f"{len(hosts)} {word}" for word, hosts in parts if hosts]
    missing = [f"{cluster.absent} without a report"] if cluster.absent else []
    return f"nodes: {', '.join(counts + missing) or 'none'}"


def counts(cluster: Cluster) -> str:
    """How many findings there are of each status."""
    times = Counter(one.status for found in cluster.nodes.values() for one in found)
    parts = [
        counted(times[status], word) if status == "warn" else f"{times[status]} {word}"
        for status, word in _WORDS.items()
        if times[status]
    ]
    return f"findings: {', '.join(parts)}"


def skipped(cluster: Cluster) -> dict[str, dict[str, None]]:
    """Checks that were skipped, by reason."""
    reasons: dict[str, dict[str, None]] = {}
    for one in (one for found in cluster.nodes.values() for one in found if one.status == "skip"):
        reasons.setdefault(one.why, {})[one.check] = None
    return reasons


def as_text(cluster: Cluster, width: int = 120, *, brief: bool = False) -> str:
    """For a terminal; `brief`: without what does not apply here."""
    shown, lacking = rows(cluster), list[str]()
    for row in [row for row in shown if row.finding.cause == "capture"]:
        lacking += [row.finding.check] if row.finding.check not in lacking else []
    shown = [row for row in shown if row.finding.cause != "capture"]
    lines = [line for row in shown for line in (*_row_lines(row, width, several=len(cluster.nodes) > 1), "")]
    if lacking:  # once, and not for each check
        text = f"UNKNOWN {LACKING}: {', '.join(lacking)}; {AGAIN}"
        lines += [
            textwrap.fill(text, width, subsequent_indent=" " * 8, break_on_hyphens=False, break_long_words=False),
            "",
        ]
    skips = [f"skipped, {why}: {', '.join(checks)}" for why, checks in skipped(cluster).items() if not brief]
    wrapped = [textwrap.fill(line, width, subsequent_indent="  ") for line in skips]
    lists = [
        f"{word}: {','.join(hosts)}"
        for word, hosts in (("not fit", cluster.failing), ("unknown", cluster.unknown))
        if hosts
    ]
    about = [textwrap.fill(line, width, subsequent_indent="  ") for line in cluster.provenance.lines if not brief]
    verdict = [counts(cluster), headline(cluster), *(lists if len(cluster.nodes) > 1 else ())]
    return "\n".join([*lines, *wrapped, *about, *verdict])


def _wrapped(text: str, width: int) -> str:
    """Names, which may have hyphens, stay whole, and so do commands in backticks: they are pasted."""
    whole = re.sub("`[^`]*`", lambda found: found[0].replace(" ", "\0"), text)
    filled = textwrap.fill(whole, width, initial_indent=" " * 8, subsequent_indent=" " * 13, break_on_hyphens=False,
                           break_long_words=False)  # fmt: skip
    return filled.replace("\0", " ")


def _row_lines(row: Row, width: int, *, several: bool) -> list[str]:
    one, subjects = row.finding, listed(row.subjects)
    lines = [f"{one.status.upper():8}{one.check}{f'  {subjects}' * bool(subjects)}"]
    facts = [("", _measured(one) + f" ({one.source})" * bool(one.source)), ("why: ", one.why), ("fix: ", row.fix)]
    facts += [("on:  ", listed(row.hosts))] if several else []
    for label, text in facts:
        lines += [_wrapped(f"{label}{text}", width)] if text else []
    return lines


def as_markdown(cluster: Cluster) -> str:
    """As Markdown."""
    about = [f"- {line}" for line in cluster.provenance.lines]
    head = ["# Preflight", "", f"- {headline(cluster)}", f"- {counts(cluster)}", *about, ""]
    table = [
        "| status | check | on | what | measured | expected | source | why | fix |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    wrong = [_markdown_row(row) for row in rows(cluster)]
    skips = [f"- skipped, {why}: {', '.join(checks)}" for why, checks in skipped(cluster).items()]
    return "\n".join([*head, *((*table, *wrong, "") if wrong else ()), *skips]) + "\n"


def _markdown_row(row: Row) -> str:
    one = row.finding
    cells = [
        one.status,
        one.check,
        listed(row.hosts),
        listed(row.subjects),
        one.amount,
        expected(one),
        one.source,
        one.why,
        row.fix,
    ]
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def as_json(cluster: Cluster) -> str:
    """Everything."""
    return plain_json.dumps({
        "schema": SCHEMA,
        **cluster.provenance.to_dict(),
        "exit_code": cluster.exit_code,
        "passing": cluster.passing,
        "failing": cluster.failing,
        "unknown": cluster.unknown,
        "absent": cluster.absent,
        "nodes": {host: [one.to_dict() for one in found] for host, found in cluster.nodes.items()},
    }, indent=1, ensure_ascii=False)  # fmt: skip
