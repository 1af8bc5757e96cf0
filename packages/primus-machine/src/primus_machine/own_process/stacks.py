"""Ranks that hang print where they are: the stack of each of their threads goes into the rank's own log."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable

__all__ = ["SIGNAL", "Stacks"]

SIGNAL = 41
"""A real-time signal, which no program has a use for; `programs.rank` makes a rank answer it."""
_ANSWER_S = 1.0


class Stacks:
    """Asks the ranks of a node once, and gives them time to answer."""

    def __init__(self) -> None:
        self._asked_at: float | None = None

    def are_printed(self, pids: Iterable[int]) -> bool:
        """Called again and again while ranks hang, until it says that they have had time enough."""
        if self._asked_at is None:
            self._asked_at = time.monotonic()
            for pid in filter(_answers, pids):
                _ask(pid)
        return time.monotonic() >= self._asked_at + _ANSWER_S


def _answers(pid: int) -> bool:
    """Whether a process has a handler for the signal: it would end any other."""
    try:
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
            caught = next((line.split()[1] for line in file if line.startswith("SigCgt:")), "0")
    except OSError:
        return False
    return bool(int(caught, 16) >> (SIGNAL - 1) & 1)


def _ask(pid: int) -> None:
    try:
        os.kill(pid, SIGNAL)
    except OSError:  # it has just ended, or is another user's
        pass
