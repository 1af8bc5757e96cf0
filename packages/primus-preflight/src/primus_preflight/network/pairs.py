"""Checks of what lies between this node and others, from what came of meeting them.

One node alone cannot tell whether it or its partner is at fault: `isolation` can, from the findings of all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from primus_preflight.checks.check import Check, Node
from primus_preflight.checks.findings import Finding
from primus_preflight.checks.rule import Rule
from primus_preflight.checks.thresholds import packaged

if TYPE_CHECKING:
    from primus_preflight.meeting.peers import Meeting, Met

__all__ = ["checks"]

ONE_STREAM_GBPS = 5.0
"""No more is asked of one stream, however fast the interface or the others: beyond it the CPU is what is measured."""
_Ask = Callable[[Rule, "Met"], Iterator[Finding]]


def checks() -> tuple[Check, ...]:
    """Those between nodes."""
    return (
        _check("peers", "each peer can be reached", _reached),
        _check("latency", "round trips to each peer are about as fast as those of other pairs", _latency),
        _check("bandwidth", "a stream to and from each peer is about as fast as those of other pairs", _bandwidth),
    )


def _check(name: str, summary: str, each: _Ask) -> Check:
    def ask(node: Node, rule: Rule) -> Iterator[Finding]:
        if node.meeting is None:
            yield rule.moot("no other node takes part")
        else:
            yield from _asked(node.meeting, rule, each)

    # The same place gives addresses and speeds: /proc/net/route and /sys/class/net, which `network.interface` reads.
    return Check(f"network.{name}", summary, (), ask, packaged()[f"network.{name}"], "perf", meets=True)


def _asked(meeting: Meeting, rule: Rule, each: _Ask) -> Iterator[Finding]:
    found = [finding for met in meeting.met for finding in each(rule, met)]
    if not found:
        why = "no peer was measured" if meeting.met else "no address of this node leads to MASTER_ADDR"
        yield replace(rule.unknown("", why), fix=rule.fix)
    elif len(meeting.met) < meeting.of:
        partners = f"{len(meeting.met)} of {meeting.of} other nodes, chosen by the schedule"
        yield replace(rule.good("", partners), compare="", expected="")
    yield from found


def _reached(rule: Rule, met: Met) -> Iterator[Finding]:
    if not met.came:
        yield replace(rule.unknown(met.name, met.why), compare=rule.compare, share=rule.share, fix=rule.fix)
    elif met.measured:
        yield rule.good(met.name, "reached", 1.0)
    else:
        yield rule.bad(met.name, "not reached", met.why)


def _latency(rule: Rule, met: Met) -> Iterator[Finding]:
    if met.measured:
        value = met.measured.latency_us
        yield rule.number(met.name, value, measured=f"{value:.0f}")


def _bandwidth(rule: Rule, met: Met) -> Iterator[Finding]:
    if met.measured:
        own = _floored(rule, met.gbps)
        yield _stream(own, f"to {met.name}", met.measured.sent_gbps)
        yield _stream(own, f"from {met.name}", met.measured.received_gbps)


def _stream(rule: Rule, subject: str, gbps: float) -> Finding:
    found = rule.number(subject, gbps, measured=f"{gbps:.3g}")
    return found if gbps < ONE_STREAM_GBPS else replace(found, share=None)


def _floored(rule: Rule, gbps: float) -> Rule:
    """With a floor from what the interfaces say they can do, where nobody has set one."""
    if rule.floor is not None or not gbps or rule.of_speed is None:
        return rule
    floor = min(rule.of_speed * gbps, ONE_STREAM_GBPS)
    return replace(rule, floor=floor, source=f"{rule.source}, {gbps:g} Gbit/s by the interfaces")
