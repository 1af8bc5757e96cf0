"""What each node measured before, as a baseline: who has become worse shows, even if all have become so together.

A value is compared with what passed on the same node, of the same subject and GPU model.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from primus_core.errors import RequestError
from primus_machine.units import counted
from primus_preflight.checks.findings import OF_ONE_NODE, Finding
from primus_preflight.checks.thresholds import fix_of
from primus_preflight.verdict import node_report
from primus_preflight.verdict.cluster import SCALED, SHARE
from primus_preflight.verdict.node_report import NodeReport, Unread

__all__ = ["Baseline", "check", "compared", "lacking", "of", "read"]


class _Earlier(NamedTuple):
    """One finding of an earlier run."""

    time: float
    finding: Finding


Baseline = Mapping[tuple[str, str], Mapping[tuple[str, str], Sequence[_Earlier]]]
"""Earlier findings by host and GPU model, then by check and subject."""


def read(paths: Iterable[str]) -> Baseline:
    """The reports in run directories, their `preflight/`, or single files.

    Raises:
        RequestError: one of them cannot be read, or holds no report of a node.
    """
    return of(report for path in paths for report in _reports(path))


def check(paths: Iterable[str]) -> None:
    """Whether each holds a report of a node: its first one is enough.

    Raises:
        RequestError: as `read`.
    """
    for path in paths:
        next(_reports(path))


def _reports(path: str) -> Iterator[NodeReport]:
    unread: list[Unread] = []
    found = False
    for one in node_report.each(path, _is_measure) if os.path.isdir(path) else [node_report.read(path, _is_measure)]:
        if isinstance(one, NodeReport):
            found = True
            yield one
        else:
            unread.append(one)
    if not found:
        why = "; ".join(f"{one.host}: {one.why}" for one in unread[:3]) or "it has no report of a node"
        raise RequestError(f"--baseline {path}: no report of a node", why=why, fix="name a preflight run")


def _is_measure(finding: Mapping[str, Any]) -> bool:
    return finding.get("compare") in OF_ONE_NODE and finding.get("status") == "pass"


def of(reports: Iterable[NodeReport]) -> Baseline:
    """What is compared in these reports. What did not pass is no measure of anything."""
    found: dict[tuple[str, str], dict[tuple[str, str], list[_Earlier]]] = {}
    for report in reports:
        mine = found.setdefault((report.host, report.gpu_model), {})
        for one in report.findings:
            if one.compare in OF_ONE_NODE and one.status == "pass":
                mine.setdefault((one.check, one.subject), []).append(_Earlier(report.time, one))
    return found


def lacking(reports: Iterable[NodeReport], baseline: Baseline) -> list[str]:
    """Hosts of which the baseline knows nothing."""
    return [report.host for report in reports if not baseline.get((report.host, report.gpu_model))]


def compared(reports: Iterable[NodeReport], baseline: Baseline) -> list[NodeReport]:
    """The reports, in which what has become worse no longer passes. What has not passed keeps its own reason."""
    return [_compared(report, baseline.get((report.host, report.gpu_model), {})) for report in reports]


def _compared(report: NodeReport, known: Mapping[tuple[str, str], Sequence[_Earlier]]) -> NodeReport:
    found = [
        _judged(one, earlier)
        if one.compare in OF_ONE_NODE and one.status == "pass" and (earlier := known.get((one.check, one.subject)))
        else one
        for one in report.findings
    ]
    return replace(report, findings=tuple(found))


def _judged(one: Finding, earlier: Sequence[_Earlier]) -> Finding:
    if one.compare == "same":
        return _word(one, max(earlier, key=lambda other: other.time))
    values = [other.finding.value for other in earlier if other.finding.value is not None]
    if one.value is None or not values:
        return one
    is_worst = one.value < min(values) if one.compare == "higher" else one.value > max(values)
    return _worse(one, one.value, values, _day(earlier)) if is_worst else one


def _word(one: Finding, last: _Earlier) -> Finding:
    """A driver that was updated may be meant so: it is a warning, whatever a difference between nodes is."""
    if one.measured == last.finding.measured:
        return one
    source = f"this node, on {_day([last])}"
    was, fix = last.finding.measured, "if this is not intended, set it back"
    return replace(one, status="warn", expected=was, why="it has changed", source=source, fix=fix)


def _worse(one: Finding, value: float, values: Sequence[float], day: str) -> Finding:
    """A value that is worse than all before: is it so by 5 %, and by more than those scatter among themselves?"""
    middle = statistics.median(values)
    scatter = SCALED * statistics.median(abs(other - middle) for other in values)
    loss = abs(middle - value)
    if loss <= max(SHARE * abs(middle), scatter):
        return one
    share = f"{100 * loss / abs(middle):.0f} % worse than " if middle else "worse than "
    why = f"{share}before ({counted(len(values), 'earlier value')})"
    expected, fix = f"about {middle:.4g}", one.fix or fix_of(one.check)
    return replace(one, status=one.severity, expected=expected, why=why, source=f"this node, on {day}", fix=fix)


def _day(earlier: Sequence[_Earlier]) -> str:
    """Of the newest."""
    return time.strftime("%Y-%m-%d", time.gmtime(max(other.time for other in earlier)))
