"""Charts keep what one would see, however many lines a run has."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from primus_page.series import apart, thinned


@given(st.lists(st.one_of(st.floats(-1e3, 1e3), st.just(math.nan)), min_size=1, max_size=500), st.integers(2, 100))
@pytest.mark.full
def test_the_ends_and_the_extremes_are_kept(ys: list[float], most: int) -> None:
    points = thinned(range(len(ys)), ys, most)
    xs = [x for x, _ in points]
    assert xs == sorted(set(xs))
    assert (xs[0], xs[-1]) == (0, len(ys) - 1)
    assert len(points) <= max(most, 3) * 1.5 + 3
    finite = [float(f"{y:.6g}") for y in ys if not math.isnan(y)]
    shown = [y for _, y in points if y is not None]
    assert finite == [] or (min(finite), max(finite)) == (min(shown), max(shown))
    assert any(map(math.isnan, ys)) == any(y is None for _, y in points)


def test_a_line_has_a_gap_where_a_run_was_started_again() -> None:
    assert apart([(1, 5.0), (2, 4.0), (2, 4.1), (3, 3.0)]) == [(1, 5.0), (2, 4.0), (2, None), (2, 4.1), (3, 3.0)]
    assert apart([]) == []


def test_a_short_run_is_drawn_whole() -> None:
    assert thinned([1, 2, 3], [0.1, 0.2, math.nan], 3) == [(1, 0.1), (2, 0.2), (3, None)]
