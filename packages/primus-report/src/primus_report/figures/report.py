"""All that one report is about: runs with their figures, and what differs between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from primus_machine.host import HostRoot
from primus_report.figures import differences, run
from primus_report.figures.differences import Differences
from primus_report.figures.run import RunReport

__all__ = ["Report", "read"]


@dataclass(frozen=True, slots=True)
class Report:
    """One run, or several side by side."""

    runs: tuple[RunReport, ...]
    differences: Differences
    time: float
    """When it was made, in seconds since the epoch."""
    price: float | None = None


def read(directories: Sequence[str], host: HostRoot, price: float | None = None) -> Report:
    """The report of the runs in `directories`."""
    runs = tuple(run.read(directory, host, price) for directory in directories)
    return Report(runs, differences.between(directories), host.now(), price)
