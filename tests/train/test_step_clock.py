"""One definition of a step's time: training, without saves, evaluations and start-up."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from primus_train.kit.step_clock import StepClock


class Time:
    """A clock that moves only when it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def passes(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def time() -> Time:
    return Time()


def test_what_comes_before_the_first_step_counts_nowhere(time: Time) -> None:
    clock = StepClock(time)
    time.passes(60)
    clock.step(128)
    time.passes(2)
    assert clock.lap() == (1, 128, 2.0, 0.0, 0.0)


def test_a_save_and_an_evaluation_are_no_part_of_a_step_and_stand_in_the_next_lap(time: Time) -> None:
    clock = StepClock(time)
    clock.step(128)
    time.passes(2)
    assert clock.lap().step_time_s == 2.0
    with clock.saving():
        time.passes(30)
    time.passes(0.5)  # the loop, between the two
    with clock.evaluating():
        time.passes(7)
    clock.step(128)
    time.passes(1.5)
    lap = clock.lap()
    assert (lap.step_time_s, lap.save_s, lap.evaluation_s) == (2.0, 30.0, 7.0)
    assert lap.tokens_per_second == 64.0
    assert clock.lap() == (0, 0, 0.0, 0.0, 0.0), "each second stands in one lap"


def test_an_evaluation_before_the_first_step_starts_no_step(time: Time) -> None:
    clock = StepClock(time)
    with clock.evaluating():
        time.passes(5)
    time.passes(3)
    clock.step(10)
    time.passes(1)
    assert clock.lap() == (1, 10, 1.0, 0.0, 5.0)


def test_where_lines_are_rare_a_lap_has_the_mean_of_its_steps(time: Time) -> None:
    clock = StepClock(time)
    for seconds in (4.0, 1.0, 1.0, 2.0):
        clock.step(100)
        time.passes(seconds)
        with clock.saving():  # in the middle of the lap, too
            time.passes(10)
    lap = clock.lap()
    assert (lap.steps, lap.step_time_s, lap.save_s, lap.tokens_per_second) == (4, 2.0, 40.0, 50.0)


def test_a_wait_for_a_save_within_an_evaluation_is_the_saves(time: Time) -> None:
    clock = StepClock(time)
    clock.step(1)
    with clock.evaluating():
        time.passes(1)
        with clock.saving():
            time.passes(2)
        time.passes(4)
    assert clock.lap() == (1, 1, 0.0, 2.0, 5.0)


def test_a_failed_save_ends_with_its_error_and_training_goes_on(time: Time) -> None:
    clock = StepClock(time)
    clock.step(1)

    def fail() -> None:
        with clock.saving():
            time.passes(3)
            raise OSError("the disk is full")

    with pytest.raises(OSError, match="full"):
        fail()
    time.passes(1)
    assert clock.lap() == (1, 1, 1.0, 3.0, 0.0)


def test_a_lap_taken_in_the_middle_of_a_save_has_what_passed_so_far(time: Time) -> None:
    clock = StepClock(time)
    clock.step(1)
    time.passes(1)
    with clock.saving():
        time.passes(2)
        assert clock.lap() == (1, 1, 1.0, 2.0, 0.0)
        time.passes(4)
    clock.step(1)
    time.passes(8)
    assert clock.lap() == (1, 1, 8.0, 4.0, 0.0)


MOMENTS = st.lists(
    st.tuples(st.sampled_from(("step", "save", "evaluate", "line")), st.integers(1, 1000), st.integers(1, 10**6)),
    min_size=1,
    max_size=60,
)


@pytest.mark.full
@given(MOMENTS)
def test_on_every_line_tokens_per_second_times_the_time_of_a_step_are_the_tokens_of_a_step(
    moments: list[tuple[str, int, int]],
) -> None:
    """And no second is lost or counted twice, whatever happens in which order."""
    time = Time()
    clock = StepClock(time)
    clock.step(7)
    began, laps, since = time.now, [], [7]
    for kind, milliseconds, tokens in moments:
        if kind == "line" and since:
            time.passes(milliseconds / 1e3)
            lap = clock.lap()
            assert lap.tokens_per_second * lap.step_time_s == pytest.approx(sum(since) / len(since))
            assert (lap.steps, lap.tokens) == (len(since), sum(since))
            laps.append(lap)
            since = []
        elif kind == "step":
            clock.step(tokens)
            since.append(tokens)
            time.passes(milliseconds / 1e3)
        elif kind in ("save", "evaluate"):
            with clock.saving() if kind == "save" else clock.evaluating():
                time.passes(milliseconds / 1e3)
    laps.append(clock.lap())
    assert sum(lap.train_s + lap.save_s + lap.evaluation_s for lap in laps) == pytest.approx(time.now - began)
