"""The lines by which a training says that it makes progress: what came before them did not end the run."""

from __future__ import annotations

from typing import Any

import re2

__all__ = ["TAIL", "steady_until"]

_STEP: Any = re2.compile(
    rb"iteration +\d+ */ *\d+ *\|"  # Megatron
    rb"|\bstep: *\d+ +loss:"  # TorchTitan
    rb"|completed step: \d+"  # MaxText
    rb"|\bstep[ =:]+\d+[^\n]{0,80}\bloss[ =:]+[-\d.]"  # most others
    rb"|\{'loss': [\d.]+"  # transformers
)
TAIL = 1 << 18
"""So much of a log's end is looked at."""
_STEPS = 3
"""So many steps after a line show that the run went on: one may have been on its way to the log."""


def steady_until(tail: bytes, first_line: int) -> int:
    """The number of the line before which nothing ended the run; 0: the end of the log shows too few steps."""
    found = [match.start() for match in _STEP.finditer(tail)][-_STEPS:]
    return first_line + tail.count(b"\n", 0, found[0]) if len(found) == _STEPS else 0
