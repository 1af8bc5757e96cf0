"""What the time of a report says of its node's clock, compared with that of node 0."""

from __future__ import annotations

from dataclasses import replace

from primus_preflight.checks.thresholds import packaged
from primus_preflight.verdict.node_report import NodeReport

__all__ = ["against"]


def against(report: NodeReport, now: float) -> NodeReport:
    """The report, which is here `now`, with what that proves: if it says that it was written later, the clocks differ.

    One that is behind cannot be told from one that was slow.
    """
    rule = packaged()["host.clock-offset"]
    ahead = report.time - now
    if rule.check not in {one.check for one in report.findings} or ahead <= (rule.limit or 0):
        return report
    why = "its report is later than the time at which node 0 read it: its clock is ahead, or node 0's is behind"
    return replace(report, findings=(*report.findings, rule.bad("relative to node 0", f"{ahead:+.1f}", why, ahead)))
