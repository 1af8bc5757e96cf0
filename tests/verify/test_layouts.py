"""Layouts as people type them, and which of them `auto` tries."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from primus_core.errors import RequestError
from primus_verify.layouts import choose, left_out, parse, scaled_down

RANK_AXES = ("dp", "tp", "pp")
VERIFIER: Any = SimpleNamespace(rank_axes=RANK_AXES, layouts=("repeat=1", "tp=2", "tp=2,pp=2"))


def test_the_degrees_of_parallel_axes_multiply_to_the_ranks() -> None:
    found = parse(" tp=2,pp=3 , mbs=4", RANK_AXES)
    assert (found.name, found.ranks) == ("tp=2,pp=3,mbs=4", 6)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("ttp=2", "unknown axis 'ttp' in layout 'ttp=2'"),
        ("tp", "layout 'tp': '' is not a positive number"),
        ("tp=1", "layout 'tp=1': tp=1 is one rank, as the reference"),
        ("tp=2,tp=4", "layout 'tp=2,tp=4' names tp twice"),
        ("sp=1", "layout 'sp=1' has sequence parallelism without tp"),
        ("tp=0", "layout 'tp=0': '0' is not a positive number"),
        ("tp=-2", "layout 'tp=-2': '-2' is not a positive number"),
        ("tp=²", "layout 'tp=²': '²' is not a positive number"),
        ("", "unknown axis '' in layout ''"),
    ],
)
def test_a_wrong_layout_is_refused_with_its_text(text: str, said: str) -> None:
    with pytest.raises(RequestError) as error:
        parse(text, RANK_AXES)
    assert error.value.what == said


def test_a_switch_can_be_off() -> None:
    assert parse("tp=2,sp=0", RANK_AXES).degrees == {"tp": 2, "sp": 0}


def test_auto_begins_with_the_own_layout_of_the_experiment_scaled_down() -> None:
    own = {"tp": 8, "sp": 1, "pp": 16, "dp": 64}
    assert [one.name for one in choose(["auto"], VERIFIER, own, 4)] == [
        "tp=2,sp=1,pp=2",
        "repeat=1",
        "tp=2",
        "tp=2,pp=2",
    ]


def test_the_own_layout_keeps_micro_batches_of_one_sequence() -> None:
    assert scaled_down({"tp": 8, "mbs": 1}, RANK_AXES, 4) == "tp=2,mbs=1"
    assert not scaled_down({"tp": 1, "mbs": 1}, RANK_AXES, 4)


def test_the_own_layout_keeps_accumulation_and_what_is_computed_again() -> None:
    assert scaled_down({"tp": 8, "recompute": 1}, RANK_AXES, 4) == "tp=2,recompute=1"
    assert scaled_down({"tp": 1, "mbs": 4}, RANK_AXES, 4) == "mbs=4"


def test_an_axis_within_another_one_goes_with_it() -> None:
    """The distributed optimizer of one rank is none."""
    own = {"ep": 8, "tp": 8, "pp": 4, "vpp": 2, "zero": 1, "dp": 2}
    assert scaled_down(own, RANK_AXES, 2) == "tp=2"
    assert scaled_down(own, RANK_AXES, 8) == "ep=2,tp=2,pp=2,vpp=2,zero=1,dp=2"
    assert scaled_down({"ep": 8}, ("ep",), 2) == "ep=2"


def test_what_the_own_layout_does_not_try_is_named_with_the_reason() -> None:
    """Ranks that are too many, and settings that no axis stands for."""
    verifier: Any = SimpleNamespace(
        rank_axes=RANK_AXES,
        own=lambda _: {"tp": 8, "pp": 4, "zero": 1, "dp": 2},
        unexpressed=lambda _: {"use_torch_fsdp2=true": "verify has no axis for it"},
    )
    assert [(one.name, one.ranks, one.why) for one in left_out(verifier, {}, 4)] == [
        (
            "tp=2,pp=2,zero=1,dp=2",
            8,
            "it has 8 ranks, and at most 4 are tried (--max-ranks); of it, tp=2,pp=2 is tried",
        ),
        ("use_torch_fsdp2=true", 0, "verify has no axis for it"),
    ]
    assert [one.name for one in left_out(verifier, {}, 8)] == ["use_torch_fsdp2=true"]


def test_auto_has_no_layout_of_more_ranks_than_asked_for_and_a_named_one_stays() -> None:
    found = choose(["auto", "tp=8"], VERIFIER, {"tp": 1}, 2)
    assert [one.name for one in found] == ["repeat=1", "tp=2", "tp=8"]


def test_all_wrong_layouts_are_named_at_once() -> None:
    with pytest.raises(RequestError) as error:
        choose(["tp=x", "qp=2"], VERIFIER, {}, 4)
    assert "tp=x" in str(error.value)
    assert "qp" in str(error.value)
