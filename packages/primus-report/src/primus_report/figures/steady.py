"""The steady-state window: the part of a run whose speed says how fast it trains.

**Definition.** Of the start of the ranks with the most lines (a run may be started again), all lines but the leading
ones that are warm-up: the first line, which holds compilation, and those after it up to the first whose `step_time_s`
lies within 10 % of the median of the second half of that start's lines. Throughput, MFU and step time of a report are
medians over this window. The rule cuts nothing in the middle: a slow step there is a slow step of the run.

**Source.** To leave out compilation and the first steps is common practice (`ml-goodput-measurement` of Google counts
the excess of the first step as start-up); the bound of 10 % is a choice of Primus.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from primus_report.figures.spans import Span
from primus_report.figures.steps import Steps

__all__ = ["Window", "find"]

_NEAR = 0.1
_FEWEST = 3
"""Lines that a window has at least."""


@dataclass(frozen=True, slots=True)
class Window:
    """The lines `first` to `end` (that one excluded) of the metrics."""

    first: int
    end: int
    first_step: int
    last_step: int
    lines: int


def find(steps: Steps, spans: Sequence[Span]) -> tuple[Window | None, str]:
    """The window, or why there is none."""
    if not spans:
        return None, "metrics.jsonl has no step"
    span = max(spans, key=lambda one: one.end - one.first)
    times = steps.columns["step_time_s"]
    settled = [value for value in times[(span.first + span.end) // 2 : span.end] if not math.isnan(value)]
    if not settled:
        return None, "metrics.jsonl has no step_time_s"
    usual = median(settled)
    near = (i for i in range(span.first + 1, span.end) if abs(times[i] - usual) <= _NEAR * usual)
    first = next(near, span.end)
    if span.end - first < _FEWEST:
        return None, f"too few steps: fewer than {_FEWEST} lines after warm-up"
    return Window(first, span.end, steps.step[first], steps.step[span.end - 1], span.end - first), ""
