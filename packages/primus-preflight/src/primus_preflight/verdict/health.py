"""What two runs found out about their nodes before they began, side by side: for `primus runs diff`.

Each check of a node is compared by its status; what was measured, too, where nodes are compared by it: a word that is
another one, a number that is further off than good silicon differs by (5 %).
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from primus_core.runs.comparison import Difference
from primus_preflight.checks.findings import OF_ONE_NODE, Finding
from primus_preflight.verdict import node_report
from primus_preflight.verdict.cluster import SHARE
from primus_preflight.verdict.node_report import FOLDER, NodeReport

__all__ = ["differences"]


def differences(before: str, after: str) -> list[Difference]:
    """What differs from the run directory `before` to `after`; nothing, where one of them has no reports.

    Nodes of one name are compared, and those that are left in the order of their ranks. The same difference on
    several nodes is one row.
    """
    rows: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for one, other in _pairs(_reports(before), _reports(after)):
        name = one.host if one.host == other.host else f"{one.host} → {other.host}"
        for row in _of_node(one, other):
            rows[row].append(name)
    return [
        Difference("health", f"{check}, {_listed(names)}", old, new)
        for (check, old, new), names in sorted(rows.items())
    ]


def _reports(run: str) -> dict[str, NodeReport]:
    folder = os.path.join(run, FOLDER)
    reports = node_report.read_all(folder)[0] if os.path.isdir(folder) else []
    return {report.host: report for report in sorted(reports, key=lambda report: report.node_rank)}


def _pairs(
    before: Mapping[str, NodeReport], after: Mapping[str, NodeReport]
) -> Iterator[tuple[NodeReport, NodeReport]]:
    yield from ((report, after[host]) for host, report in before.items() if host in after)
    gone = (report for host, report in before.items() if host not in after)
    come = (report for host, report in after.items() if host not in before)
    yield from zip(gone, come, strict=False)


def _of_node(before: NodeReport, after: NodeReport) -> Iterator[tuple[str, str, str]]:
    """Of the checks that both nodes were asked."""
    old, new = ({(one.check, one.subject): one for one in report.findings} for report in (before, after))
    asked = {check for check, _ in old} & {check for check, _ in new}
    for check, subject in dict.fromkeys((*old, *new)):
        pair = old.get((check, subject)), new.get((check, subject))
        if check in asked and _differ(*pair):
            yield f"{check} {subject}".rstrip(), _text(pair[0]), _text(pair[1])


def _differ(before: Finding | None, after: Finding | None) -> bool:
    if before is None or after is None or before.status != after.status:
        return True
    if before.compare not in OF_ONE_NODE:
        return False
    if before.value is None or after.value is None:
        return before.measured != after.measured
    return abs(after.value - before.value) > SHARE * max(abs(before.value), abs(after.value))


def _text(one: Finding | None) -> str:
    """The status and what was measured; empty: there was no such thing."""
    return f"{one.status} {one.amount}".strip() if one else ""


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
