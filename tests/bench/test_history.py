"""The history of benchmarks as people see it: its table and its plots."""

from __future__ import annotations

import re
from datetime import datetime

import pytest

from primus_bench.history.store import Point
from primus_bench.history.view import plot

_BEGAN = 1.78e9


def _points(*after_s: float) -> list[Point]:
    return [
        Point(f"run-{seconds:g}", _BEGAN + seconds, "gemm", "a CPU", "square", "{}", "TFLOP/s", 1 + number / 10, 1.0)
        for number, seconds in enumerate(after_s)
    ]


@pytest.mark.parametrize("after_s", [(0, 0), (0, 3), (0, 70), (0, 90_000), (0, 5, 3e7)])
@pytest.mark.parametrize("width", [50, 100])
def test_the_axis_of_a_plot_is_the_time_from_the_first_result_to_the_last(
    after_s: tuple[float, ...], width: int
) -> None:
    labels = re.findall(r"\d{4}-\d\d-\d\d \d\d:\d\d(?::\d\d)?", plot(_points(*after_s), width, colour=False))
    ends = [datetime.fromisoformat(labels[number]).astimezone().timestamp() for number in (0, -1)]
    assert abs(ends[0] - _BEGAN) <= 60
    assert abs(ends[1] - _BEGAN - after_s[-1]) <= 60
    assert len(set(labels)) == len(labels) >= 2
