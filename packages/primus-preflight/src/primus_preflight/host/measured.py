"""Checks of the host that measure, or ask the running kernel: the disk's speed, the clock, the kernel's log."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from primus_preflight.checks.check import Ask, Check, Level, Node
from primus_preflight.checks.findings import Finding
from primus_preflight.checks.measuring import Once, needs_this_machine
from primus_preflight.checks.rule import Rule
from primus_preflight.checks.thresholds import packaged
from primus_preflight.host import clock, disk_speed, kernel_log
from primus_preflight.host.disk_speed import Speed

__all__ = ["checks"]


def checks() -> tuple[Check, ...]:
    """Those of the host that only the machine itself can answer."""
    disk = Once(_disk)

    def check(name: str, summary: str, ask: Ask, level: Level = "quick") -> Check:
        return Check(f"host.{name}", summary, (), needs_this_machine(ask), packaged()[f"host.{name}"], level)

    return (
        check("clock", "the clock is synchronised", clock.synchronised),
        check("clock-offset", "the clock agrees with that of the file server", clock.server),
        check("dmesg", "the kernel log has no fault", kernel_log.ask),
        check("disk-write", "writing to the run directory is fast", _speed(disk.of, "written"), "perf"),
        check("disk-read", "reading from the run directory is fast", _speed(disk.of, "read"), "perf"),
    )


def _disk(node: Node) -> Speed | str:
    """Its speed, or why it cannot be measured."""
    space = node.host.space(node.run_dir)
    if space and space[1] < 2 * disk_speed.SIZE:
        return f"{node.run_dir} has only {space[1] >> 20} MiB free"
    try:
        return disk_speed.measure(node.run_dir)
    except OSError as error:
        return f"{node.run_dir}: {error.strerror}"


def _speed(measured: Callable[[Node], Speed | str], way: str) -> Ask:
    def ask(node: Node, rule: Rule) -> Iterator[Finding]:
        if not node.run_dir:
            yield rule.skip("no run directory")
            return
        found = measured(node)
        if isinstance(found, str):
            yield rule.unknown("", found)
        else:
            value: float = getattr(found, way)
            yield rule.number("", value, measured=f"{value:.4g}")

    return ask
