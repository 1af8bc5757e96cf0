"""Progress of what takes longer than two seconds: documents, MB/s and the time that is left.

On a terminal it is one live line; elsewhere a line of the log, ever more rarely.
"""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType
from typing import Self

from primus_core import get_logger
from primus_machine.units import time_span

__all__ = ["Progress"]

_FIRST_AFTER_S, _GROWTH, _LONGEST_PAUSE_S = 2.0, 1.5, 30.0
_LIVE_EVERY_S = 0.5
_MB = 1e6
_CERTAIN = 0.005
"""Of the whole, before the rest is estimated."""


class Progress:
    """What is done of `total` bytes; 0: nobody knows how many there are. `unit`: of what is counted beside them."""

    def __init__(self, what: str, total: int = 0, *, unit: str = "documents") -> None:
        self.what, self.total, self.unit = what, total, unit
        self.size = self.count = self.others = self._before = 0
        self.note = ""
        """What it does or waits for instead of counting; empty: it counts."""
        self._is_live = sys.stderr.isatty()
        self._width = 0
        self._over, self._began = threading.Event(), time.monotonic()
        self._thread = threading.Thread(target=self._speak, name="progress", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._over.set()
        self._thread.join()

    def start_at(self, size: int) -> None:
        """So many bytes had been done before."""
        self.others = self._before = size

    def add(self, size: int, count: int) -> None:
        """So many more are done."""
        self.size += size
        self.count += count

    @property
    def seconds(self) -> float:
        """Since it began."""
        return time.monotonic() - self._began

    def line(self) -> str:
        """How far it is."""
        done = self.size + self.others
        speed = (done - self._before) / max(self.seconds, 1e-9)
        parts = [f"{self.count:,} {self.unit}", f"{done / _MB:,.0f} MB"]
        if self.total:
            share = min(done / self.total, 1.0)
            parts[1] = f"{done / _MB:,.0f} of {self.total / _MB:,.0f} MB ({share:.0%})"
        if self.note:
            return f"{self.what}: {', '.join(parts)}; {self.note}"
        parts.append(f"{speed / _MB:,.1f} MB/s")
        if self.total and done - self._before > self.total * _CERTAIN:
            parts.append(f"{time_span(max(self.total - done, 0) / speed)} left")
        return f"{self.what}: {', '.join(parts)}"

    def _speak(self) -> None:
        pause_s = _FIRST_AFTER_S
        while not self._over.wait(pause_s):
            if self._is_live:
                self._draw(self.line())
                pause_s = _LIVE_EVERY_S
            else:
                get_logger().info("data_progress", message=self.line())
                pause_s = min(pause_s * _GROWTH, _LONGEST_PAUSE_S)
        if self._width:
            self._draw("")
            sys.stderr.write("\r")

    def _draw(self, line: str) -> None:
        sys.stderr.write(f"\r{line:<{self._width}}")
        sys.stderr.flush()
        self._width = max(self._width, len(line))
