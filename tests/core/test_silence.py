"""How long ranks may be silent, at the start and later."""

from __future__ import annotations

from pathlib import Path

import pytest

from primus_machine.output.silence import Silence


class Clock:
    """A clock that moves when a test says so."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def late(watch: Silence, clock: Clock, until: float) -> float:
    """When ranks are found to hang: looked at each quarter of a second."""
    while clock.now < until:
        clock.now += 0.25
        if watch.is_too_long():
            return clock.now
    return 0.0


def test_ranks_may_be_silent_longer_before_the_first_step(clock: Clock, tmp_path: Path) -> None:
    metrics = tmp_path / "metrics.jsonl"
    watch = Silence(10, 100, str(metrics), clock)
    assert late(watch, clock, 90) == 0
    metrics.write_text("{}\n", encoding="utf-8")
    assert 100 < late(watch, clock, 200) <= 106  # within a twentieth of the longer limit


def test_a_step_of_an_earlier_attempt_is_none_of_this_one(clock: Clock, tmp_path: Path) -> None:
    metrics = tmp_path / "metrics.jsonl"
    metrics.write_text("{}\n", encoding="utf-8")
    assert late(Silence(10, 100, str(metrics), clock), clock, 200) == 100.25


def test_a_step_that_another_node_logs_ends_the_silence_at_once(clock: Clock, tmp_path: Path) -> None:
    metrics = tmp_path / "metrics.jsonl"
    watch = Silence(10, 10, str(metrics), clock)
    for step in range(1, 20):
        assert late(watch, clock, step * 5) == 0
        metrics.write_text("{}\n" * step, encoding="utf-8")
    assert 104 < late(watch, clock, 200) < 106


@pytest.mark.parametrize(("limits", "found"), [((0, 0), 0.0), ((0, 50), 50.25), ((10, 10), 10.25)])
def test_each_limit_holds_alone(limits: tuple[float, float], found: float, clock: Clock) -> None:
    assert late(Silence(*limits, "", clock), clock, 300) == found
