"""Signs of life: none for quick work, some for slow work, even while it blocks."""

from __future__ import annotations

import threading

import pytest
from tests.conftest import wait_until

from primus_bench.measure.progress import Progress


def test_quick_work_is_silent() -> None:
    said: list[str] = []
    with Progress(said.append) as progress:
        progress("drawing")
    assert said == []


def test_slow_work_says_what_it_does_and_for_how_long_although_it_blocks() -> None:
    said: list[str] = []
    with Progress(said.append, first_after_s=0.01) as progress:
        progress("checking")
        wait_until(lambda: len(said) > 1)
    assert said[:2] == ["bench: checking", "bench: checking (for 0 s)"]


def test_nothing_goes_on_after_an_error() -> None:
    with pytest.raises(ValueError, match="broken"), Progress(print):
        raise ValueError("broken")
    assert "progress" not in [thread.name for thread in threading.enumerate()]


def test_nothing_is_said_before_there_is_something_to_say() -> None:
    said: list[str] = []
    with Progress(said.append, first_after_s=0.001) as progress:
        wait_until(lambda: progress._pause_s > 0.001)  # it has looked
        assert said == []
