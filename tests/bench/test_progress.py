"""Signs of life: none for quick work, some for slow work, even while it blocks."""

from __future__ import annotations

import threading
import time

import pytest
from tests.conftest import wait_until

from primus_bench.progress import Progress


def test_quick_work_is_silent() -> None:
    said: list[str] = []
    with Progress(said.append) as progress:
        progress("drawing")
    assert said == []


def test_slow_work_says_what_it_does_once_although_it_blocks() -> None:
    said: list[str] = []
    with Progress(said.append, first_after_s=0.01) as progress:
        progress("checking")
        wait_until(lambda: said)
        time.sleep(0.1)
    assert said == ["bench: checking"]


def test_nothing_goes_on_after_an_error() -> None:
    with pytest.raises(ValueError, match="broken"), Progress(print):
        raise ValueError("broken")
    assert "progress" not in [thread.name for thread in threading.enumerate()]
