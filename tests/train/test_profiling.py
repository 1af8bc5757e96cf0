"""`--profile STEPS`: the steps that it names, and the settings that a backend makes of them."""

from __future__ import annotations

from argparse import ArgumentTypeError

import pytest

from primus_core.errors import RequestError
from primus_train import profiling
from primus_train.profiling import ProfiledSteps


@pytest.mark.parametrize(("text", "first", "last", "number"), [("10:13", 10, 13, 4), ("5", 5, 5, 1), ("1:1", 1, 1, 1)])
def test_steps_are_a_number_or_from_and_to(text: str, first: int, last: int, number: int) -> None:
    steps = profiling.parse(text)
    assert (steps, steps.number) == ((first, last), number)


@pytest.mark.parametrize("text", ["", "0", "5:3", "-1", "5:", ":5", "1:2:3", "five", "1.5", "9" * 30, "0:4"])
def test_anything_else_names_no_steps(text: str) -> None:
    with pytest.raises(ArgumentTypeError, match="names no steps"):
        profiling.parse(text)


def test_settings_are_nested_and_say_where_they_are_from() -> None:
    found = profiling.settings("x", lambda steps, folder: {"a.b": steps.last, "c": folder}, ProfiledSteps(2, 3), "/run")
    assert found.data == {"a": {"b": 3}, "c": "/run"}
    assert found.where(("a", "b")) == "command line: --profile 2:3"


def test_a_backend_without_settings_for_a_profiler_refuses() -> None:
    with pytest.raises(RequestError, match="acme does not support --profile"):
        profiling.settings("acme", None, ProfiledSteps(2, 3), "/run")


def test_steps_after_which_none_follows_leave_no_trace() -> None:
    profiling.refuse_late(ProfiledSteps(2, 3), {"hyperparameters": {"steps": 4}})
    profiling.refuse_late(ProfiledSteps(2, 3), {})
    profiling.refuse_late(None, {"hyperparameters": {"steps": 3}})
    with pytest.raises(RequestError, match="training ends at step 3"):
        profiling.refuse_late(ProfiledSteps(2, 3), {"hyperparameters": {"steps": 3}})
