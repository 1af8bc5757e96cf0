"""How far a fetch is: rows, MB/s and the time that is left, by the rows or files that are known."""

from __future__ import annotations

import sys
import time

from primus_core import get_logger
from primus_data import progress
from primus_machine.text import printable
from primus_machine.units import time_span

__all__ = ["Progress", "say"]


class Progress(progress.Progress):
    """Numbers that the work sets, and the line that is made of them."""

    def __init__(self) -> None:
        super().__init__("fetch", unit="rows")
        self.received = 0
        """Bytes that came from the network."""
        self.share = 0.0
        """Of the work, from 0 to 1."""
        self._first: tuple[float, float] | None = None

    def reach(self, share: float) -> None:
        """So much is done. What an earlier start did says nothing about the speed of this one."""
        self._first = self._first or (share, time.monotonic())
        self.share = share

    def line(self) -> str:
        """The line."""
        if self.note:
            return printable(f"{self.what}: {self.note}")
        before, began = self._first or (0.0, time.monotonic())
        seconds = max(time.monotonic() - began, 1e-9)
        parts = [f"{self.count:,} {self.unit}", f"{(self.received or self.size) / seconds / 1e6:.1f} MB/s"]
        if self.share > before:
            left_s = seconds * (1 - self.share) / (self.share - before)
            parts += [f"{self.share:.0%}", f"{time_span(left_s)} left"]
        return f"{self.what}: {', '.join(parts)}"


def say(event: str, message: str) -> None:
    """A line of the log, in place of the live one."""
    if sys.stderr.isatty():
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()
    get_logger().info(event, message=printable(f"fetch: {message}"))
