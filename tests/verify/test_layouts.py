"""Layouts as people type them, and which of them `auto` tries."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from primus_core.errors import RequestError
from primus_verify.layouts import choose, has_own, left_out, parse, scaled_down

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
        ("", "a layout is empty"),
        ("tp=2,,pp=2", "layout 'tp=2,,pp=2' has a comma without an axis"),
        ("zero=2,dp=2", "layout 'zero=2,dp=2': zero is 1 or 0, not '2'"),
        ("tp=2,sp=2", "layout 'tp=2,sp=2': sp is 1 or 0, not '2'"),
        ("recompute=2", "layout 'recompute=2': recompute is 1, not '2'"),
        ("recompute=0", "layout 'recompute=0': recompute is 1, not '0'"),
        ("repeat=5", "layout 'repeat=5': repeat is 1, not '5'"),
    ],
)
def test_a_wrong_layout_is_refused_with_its_text(text: str, said: str) -> None:
    with pytest.raises(RequestError) as error:
        parse(text, RANK_AXES)
    assert error.value.what == said


def test_a_degree_without_its_sign_is_answered_with_the_axis() -> None:
    with pytest.raises(RequestError, match="did you mean 'tp=2'"):
        parse("tp2", RANK_AXES)


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


def test_own_is_found_also_where_several_layouts_stand_in_one_word_of_the_shell() -> None:
    assert [has_own(words) for words in (["own"], ["tp=2 own"], ["auto"], ["tp=2,pp=2", "dp=2"], [])] == [
        True, True, True, False, False]  # fmt: skip


def test_auto_has_no_layout_of_more_ranks_than_asked_for_and_a_named_one_stays() -> None:
    found = choose(["auto", "tp=8"], VERIFIER, {"tp": 1}, 2)
    assert [one.name for one in found] == ["repeat=1", "tp=2", "tp=8"]


@pytest.mark.parametrize("word", ["", " ", "own"])
def test_a_list_that_would_be_empty_is_refused(word: str) -> None:
    with pytest.raises(RequestError, match=r"a layout is empty|own layout is one rank: nothing to compare"):
        choose([word], VERIFIER, {"tp": 1}, 4)


def test_own_that_needs_more_ranks_than_are_allowed_is_not_called_one_rank() -> None:
    with pytest.raises(RequestError, match="needs more ranks than --max-ranks 1"):
        choose(["own"], VERIFIER, {"tp": 8}, 1)


def test_layouts_in_one_word_of_the_shell_are_split_at_blanks_and_not_at_commas() -> None:
    found = choose(["tp=2 pp=2", "tp=4 , pp=2"], VERIFIER, {}, 4)
    assert [one.name for one in found] == ["tp=2", "pp=2", "tp=4,pp=2"]


@pytest.mark.parametrize(
    ("word", "fix"),
    [
        ("training.steps=3", "if it is a setting: settings come before --layouts; known: dp, "),
        ("workspace=/tmp/x", "if it is a setting: settings come before --layouts; known: dp, "),
        ("atuo", "did you mean 'auto'?"),
        ("everything", "known: own, auto, dp, "),
        ("ttp=2", "did you mean 'tp'?"),
    ],
)
def test_an_unknown_word_is_answered_with_what_can_stand_there(word: str, fix: str) -> None:
    with pytest.raises(RequestError) as error:
        choose([word], VERIFIER, {}, 4)
    assert error.value.fix.startswith(fix)


def test_tensor_parallelism_that_is_named_has_the_experiments_sequence_parallelism() -> None:
    named = choose(["tp=2", "tp=2,sp=0", "pp=2"], VERIFIER, {"tp": 8, "sp": 1}, 4)
    assert [one.name for one in named] == ["tp=2,sp=1", "tp=2,sp=0", "pp=2"]
    assert [one.name for one in choose(["auto"], VERIFIER, {"sp": 1}, 4)] == ["repeat=1", "tp=2", "tp=2,pp=2"]


def test_a_layout_of_auto_that_is_named_too_counts_as_named() -> None:
    for words in (["tp=2", "auto"], ["auto", "tp=2"]):
        found = choose(words, VERIFIER, {}, 4)
        assert {one.name: one.asked for one in found} == {"repeat=1": False, "tp=2": True, "tp=2,pp=2": False}


def test_all_wrong_layouts_are_named_at_once() -> None:
    with pytest.raises(RequestError) as error:
        choose(["tp=x", "qp=2"], VERIFIER, {}, 4)
    assert "tp=x" in str(error.value)
    assert "qp" in str(error.value)
