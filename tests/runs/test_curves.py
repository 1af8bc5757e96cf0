"""The losses of two runs, side by side."""

from __future__ import annotations

import json
import time
import tracemalloc
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from primus_runs.curves import Curve, read, side_by_side


def curve(steps: Iterable[int], loss: float = 4.0) -> Curve:
    """A run that logged these steps."""
    made = Curve()
    for step in steps:
        made.add({"step": step, "loss": loss + step})
    return made


@given(st.sets(st.integers(1, 500)), st.sets(st.integers(1, 500)))
def test_the_steps_shown_are_of_both_runs_and_few_with_the_first_and_the_last(a: set[int], b: set[int]) -> None:
    shown = [point.step for point in side_by_side(curve(a), curve(b))]
    common = sorted(a & b)
    assert set(shown) <= set(common)
    assert shown == sorted(set(shown))
    assert len(shown) == min(len(common), 8)
    assert (shown[:1], shown[-1:]) == (common[:1], common[-1:])


def test_a_difference_is_from_the_first_run_to_the_second() -> None:
    [point] = side_by_side(curve([6], 4.0), curve([6], 3.0))
    assert point.to_dict() == {"step": 6, "a": 10.0, "b": 9.0, "difference": -1.0, "relative": -0.1}
    [nothing] = side_by_side(curve([6], -6.0), curve([6]))
    assert nothing.relative is None


def test_of_a_run_that_was_started_again_the_later_steps_count(tmp_path: Path) -> None:
    rows = [(1, 9.0), (2, 8.0), (3, 7.0), (2, 6.0), (3, 5.0)]
    text = "".join(json.dumps({"step": step, "steps": 3, "loss": loss}) + "\n" for step, loss in rows)
    (tmp_path / "metrics.jsonl").write_text(text + "no JSON\n" + '{"step": 4, "lo')
    found = read(str(tmp_path))
    assert (found.losses, found.last_step, found.last_loss) == ({1: 9.0, 2: 6.0, 3: 5.0}, 3, 5.0)
    assert found.tokens_per_second is None


def test_a_loss_that_is_not_finite_has_no_place_on_a_curve(tmp_path: Path) -> None:
    rows = [(1, 9.0), (2, 8.0), (2, None), (3, None)]
    text = "".join(json.dumps({"step": step, "steps": 3, "loss": loss}) + "\n" for step, loss in rows)
    (tmp_path / "metrics.jsonl").write_text(text)
    found = read(str(tmp_path))
    assert (found.losses, found.last_step, found.last_loss) == ({1: 9.0}, 3, None)


def test_a_run_without_metrics_has_no_curve(tmp_path: Path) -> None:
    assert side_by_side(read(str(tmp_path)), curve([1])) == []


@pytest.mark.full
def test_a_long_run_is_read_without_keeping_its_lines(tmp_path: Path) -> None:
    row = {"step": 0, "steps": 1, "loss": 1.5, "tokens_per_second": 7.0, "time": time.time(), "more": "x" * 400}
    with (tmp_path / "metrics.jsonl").open("w") as file:
        file.writelines(json.dumps({**row, "step": step}) + "\n" for step in range(20_000))
    tracemalloc.start()
    found = read(str(tmp_path))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (len(found.losses), found.tokens_per_second) == (20_000, 7.0)
    assert peak < (tmp_path / "metrics.jsonl").stat().st_size / 2
