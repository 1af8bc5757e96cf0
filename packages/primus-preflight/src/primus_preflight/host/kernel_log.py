"""Faults in the kernel's log. Which lines are some, and what they mean, is data: `data/kernel_log.toml`.

It is read as `dmesg` does it, from `/dev/kmsg`, which many machines show to root only.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

from primus_machine.units import counted
from primus_preflight.checks.check import Node
from primus_preflight.checks.findings import Finding, Severity
from primus_preflight.checks.rule import Rule

__all__ = ["Fault", "Line", "ask", "faults", "judged", "parsed"]

_DEVICE = "/dev/kmsg"
_RECORD = 8192
"""The kernel writes none that is longer (Linux, Documentation/ABI/testing/dev-kmsg)."""
_MOST_RECORDS = 1_000_000
_FACILITY = 8
"""What programs write there has a number from here on; the kernel's own is below."""
_SHOWN = 160


class Line(NamedTuple):
    """A line of the kernel."""

    seconds: float
    """Since it started."""
    text: str


@dataclass(frozen=True, slots=True)
class Fault:
    """A kind of line that means a fault."""

    name: str
    pattern: str
    severity: Severity
    means: str
    fix: str
    source: str


@cache
def faults() -> tuple[Fault, ...]:
    """All that are known. A line is of the first that it matches."""
    import tomllib

    text = (Path(__file__).parents[1] / "data" / "kernel_log.toml").read_text(encoding="utf-8")
    return tuple(Fault(name, **row) for name, row in tomllib.loads(text).items())


def ask(_: Node, rule: Rule) -> Iterator[Finding]:
    """One finding for each kind of fault."""
    try:
        lines = parsed(_records())
    except OSError as error:
        yield rule.unknown("", f"{_DEVICE}: {error.strerror}")
        return
    yield from judged(rule, lines, time.monotonic())


def _records() -> Iterator[bytes]:
    """What the kernel still has. Reading it takes nothing away from others."""
    descriptor = os.open(_DEVICE, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        for _ in range(_MOST_RECORDS):
            try:
                yield os.read(descriptor, _RECORD)
            except BlockingIOError:  # that was the last
                return
            except BrokenPipeError:  # it was overwritten just now; the next one is there
                continue
    finally:
        os.close(descriptor)


def parsed(records: Iterator[bytes]) -> list[Line]:
    """`6,339,5140900,-;text`: priority, number, microseconds, flags; then properties, a line each."""
    found = []
    for record in records:
        head, _, text = record.decode(errors="replace").partition(";")
        fields = head.split(",")
        if len(fields) >= 4 and fields[0].isdecimal() and fields[2].isdecimal() and int(fields[0]) < _FACILITY:
            found.append(Line(int(fields[2]) / 1e6, text.partition("\n")[0]))
    return found


def judged(rule: Rule, lines: Sequence[Line], now: float) -> Iterator[Finding]:
    """What is wrong by these lines; `now`: seconds since the kernel started."""
    known = [(fault, re.compile(fault.pattern)) for fault in faults()]
    found: dict[Fault, list[Line]] = {}
    for line in lines:
        if fault := next((fault for fault, pattern in known if pattern.search(line.text)), None):
            found.setdefault(fault, []).append(line)
    if not lines:
        yield rule.unknown("", f"{_DEVICE} is empty")
    elif not found:
        yield rule.good("", f"none in {counted(len(lines), 'line')}")
    for fault in sorted(found, key=faults().index):
        yield _finding(rule, fault, found[fault], now)


def _finding(rule: Rule, fault: Fault, lines: Sequence[Line], now: float) -> Finding:
    own = replace(rule, severity=fault.severity, source=fault.source, fix=fault.fix)
    last = lines[-1]
    why = f"{fault.means}; last {_ago(now - last.seconds)} ago: {last.text.strip()[:_SHOWN]}"
    return own.bad(fault.name, counted(len(lines), "line"), why)


def _ago(seconds: float) -> str:
    for unit, length in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(seconds, 0):.0f} seconds"
