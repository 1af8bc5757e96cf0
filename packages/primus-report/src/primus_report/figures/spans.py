"""Which lines of the metrics belong to one start of the ranks, how many steps a line stands for, and which were kept.

A run that is started again continues at its newest checkpoint: the steps between that and its end are done twice. The
later ones led to what came after; the time of the earlier ones is lost.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from primus_report.figures.steps import Steps

__all__ = ["Span", "kept_steps", "split", "steps_of_line"]


@dataclass(frozen=True, slots=True)
class Span:
    """The lines `first` to `end` (that one excluded) are of one start of the ranks."""

    first: int
    end: int
    begins_at: int
    """The step before its first: that of the checkpoint, or 0."""


def split(steps: Steps, starts: Sequence[float] = (), saved: Sequence[int] = ()) -> list[Span]:
    """One span a start. A new one begins where the steps do not rise, or where an attempt began between two lines.

    Args:
        steps: all lines.
        starts: when the attempts began, in order, in seconds since the epoch.
        saved: the steps of which there were checkpoints.
    """
    borders = [index for index in range(1, len(steps)) if _is_border(steps, index, starts)]
    ends = [*borders, len(steps)] if len(steps) else []
    return [
        Span(first, end, _begins_at(steps, first, end, saved)) for first, end in zip([0, *borders], ends, strict=False)
    ]


def _is_border(steps: Steps, index: int, starts: Sequence[float]) -> bool:
    if steps.step[index] <= steps.step[index - 1]:
        return True
    times = steps.columns["time"]
    before, now = times[index - 1], times[index]
    if math.isnan(before) or math.isnan(now):
        return False
    return bisect_right(starts, before) < bisect_right(starts, now)


def _begins_at(steps: Steps, first: int, end: int, saved: Sequence[int]) -> int:
    """The first line stands for as many steps as lie between two lines, at most; a checkpoint tells exactly."""
    step = steps.step[first]
    stride = steps.step[first + 1] - step if end - first > 1 else 1
    if 0 <= step <= stride or step < 1:
        return min(step, 0)
    before = [one for one in saved if step - stride <= one < step]
    return max(before) if before else step - stride


def steps_of_line(steps: Steps, span: Span, index: int) -> int:
    """How many steps the line at `index` stands for: those since the line before."""
    before = span.begins_at if index == span.first else steps.step[index - 1]
    return max(steps.step[index] - before, 0)


def kept_steps(steps: Steps, spans: Sequence[Span]) -> list[list[int]]:
    """For each span, of each of its lines: how many of its steps were not done again by a later span."""
    limits, lowest = [], math.inf
    for span in reversed(spans):
        limits.append(lowest)
        lowest = min(lowest, span.begins_at)
    return [_kept(steps, span, limit) for span, limit in zip(spans, reversed(limits), strict=True)]


def _kept(steps: Steps, span: Span, limit: float) -> list[int]:
    found = []
    for index in range(span.first, span.end):
        count = steps_of_line(steps, span, index)
        again = max(min(steps.step[index] - limit, count), 0) if limit < math.inf else 0
        found.append(int(count - again))
    return found
