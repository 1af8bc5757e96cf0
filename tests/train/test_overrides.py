"""Settings on the command line."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from primus_core.config.document import Document, at
from primus_core.errors import RequestError
from primus_train import overrides

names = st.from_regex(r"[a-z][a-z0-9_]{0,6}", fullmatch=True).filter(lambda n: "token" not in n)
values = st.integers() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False).map(float)


def refused(*words: str) -> RequestError:
    """The error that these words give."""
    with pytest.raises(RequestError) as caught:
        overrides.parse(words, {})
    return caught.value


@pytest.mark.parametrize("words", [["a.b=1e-5"], ["--a.b", "1e-5"], ["--a.b=1e-5"]])
def test_the_three_ways_of_writing_a_setting_mean_the_same(words: list[str]) -> None:
    document = overrides.parse(words, {})
    assert document.data == {"a": {"b": 1e-5}}
    assert document.where(("a", "b")) == f"command line: {' '.join(words)}"


@pytest.mark.full
@given(st.lists(st.tuples(st.lists(names, min_size=1, max_size=3), values), max_size=6))
def test_of_two_settings_of_one_key_the_later_wins(settings: list[tuple[list[str], Any]]) -> None:
    words = [f"{'.'.join(path)}={value}" for path, value in settings]
    if any(a[: len(b)] == b and a != b for a, _ in settings for b, _ in settings):
        assert "has a value, and settings below it" in refused(*words).what
    elif settings:
        path, value = settings[-1]
        assert at(overrides.parse(words, {}).data, tuple(path)) == value


@given(st.lists(st.text(max_size=10), max_size=5))
def test_any_words_are_settings_or_refused(words: list[str]) -> None:
    result, what = Document({}), "nothing wrong"
    try:
        result = overrides.parse(words, {})
    except RequestError as error:
        what = error.what
    assert all(isinstance(key, str) and key for key in result.data)
    assert what


@pytest.mark.parametrize(
    ("words", "data"),
    [
        (["--lr", "-0.1"], {"lr": -0.1}),
        (["--lr", "-1e-3"], {"lr": -1e-3}),
        (["--text", "a=b"], {"text": "a=b"}),
        (["text=a=b"], {"text": "a=b"}),
        (["name=run #5: better"], {"name": "run #5: better"}),
        (["dims=[1, 2]"], {"dims": [1, 2]}),
        (["opt={lr: 1}", "opt.eps=2"], {"opt": {"lr": 1, "eps": 2}}),
        (["opt.lr=1", "opt={eps: 2}"], {"opt": {"lr": 1, "eps": 2}}),
        (["empty=", "--void=", "--bare", "", "n=null"], {"empty": "", "void": "", "bare": "", "n": None}),
        (["a=None", "b=null", "c=~", "--d", "None", "e='None'"], {**dict.fromkeys("abcd"), "e": "None"}),
        (["--fast", "--lr", "1"], {"fast": True, "lr": 1}),
        (
            ["--fast", "data.text=null", "--mock", "fused=true"],
            {"fast": True, "data": {"text": None}, "mock": True, "fused": True},
        ),
        (
            ["--train-iters", "5", "--opt.max-lr=1", "--no-fusion"],
            {"train_iters": 5, "opt": {"max_lr": 1}, "no_fusion": True},
        ),
        (["lr=1", "--fast"], {"fast": True, "lr": 1}),
    ],
)
def test_values_are_what_a_person_would_expect(words: list[str], data: dict[str, Any]) -> None:
    assert overrides.parse(words, {}).data == data


@pytest.mark.parametrize("word", ["steps", "-xy=1", "=1", "--", "--=1", ""])
def test_what_is_no_setting_is_refused(word: str) -> None:
    error = refused(word)
    assert error.what == f"'{word}' is not a setting"
    assert error.fix == "write key=value, --key value or --key=value"


@pytest.mark.parametrize("words", [["-o", "my.yaml"], ["-o=my.yaml"], ["-o"], ["-v"], ["-q4"], ["--fast", "-o", "x"]])
def test_an_option_of_one_letter_is_no_setting_and_no_value(words: list[str]) -> None:
    error = refused(*words)
    word = next(word for word in words if not word.startswith("--"))
    assert (error.what, error.fix) == (f"unknown option '{word[:2]}'", "remove it")
    assert error.options == tuple(words[words.index(word) :])
    assert overrides.parse(["--lr", "-3", "flags=-O3"], {}).data == {"lr": -3, "flags": "-O3"}


@pytest.mark.parametrize("words", [["opt=adam", "opt.lr=1"], ["--opt.lr", "1", "opt=adam"]])
def test_a_key_with_a_value_and_settings_below_it_is_refused_in_either_order(words: list[str]) -> None:
    error = refused(*words)
    assert error.what == "command line: 'opt' has a value, and settings below it"
    assert all(word in error.why for word in ("opt=adam", "opt.lr"))


def test_all_wrong_words_are_said_at_once() -> None:
    error = refused("steps", "lr=${UNSET_HERE}", "right=1", "a=1", "a.b=2")
    assert [one.what.partition(": ")[2] or one.what for one in error.each()] == [
        "'steps' is not a setting",
        "lr=${UNSET_HERE}: ${UNSET_HERE} is not set",
        "'a' has a value, and settings below it",
    ]


def test_several_words_behind_a_setting_are_one_mistake_and_what_to_write_is_one_word() -> None:
    error = refused("--data-path", "0.7", "/web", "0.3", "/my books", "a=1")
    assert error.what == "'--data-path' has 4 words behind it: 0.7 /web 0.3 /my books"
    assert error.fix == "write 'data_path=[0.7, /web, 0.3, /my books]', as one word"
    assert refused("--lr", "=", "3e-4").fix == "write lr=3e-4, as one word"


def test_a_word_that_is_nearly_an_option_of_the_command_is_one_and_no_setting() -> None:
    flags = ("-h", "--profile", "--continue", "--resolved", "--json")
    with pytest.raises(RequestError) as caught:
        overrides.refuse_misspelt(
            ["--continu", "latest", "--resolvd", "--lr", "1", "continu=1", "--profiler.x", "1"], flags
        )
    assert [error.meant for error in caught.value.each()] == ["--continue", "--resolved"]
    assert "did you mean '--continue'?" in caught.value.fix


def test_an_empty_part_between_dots_is_refused() -> None:
    assert "is not a setting" in refused("training..steps=1").what


def test_a_section_that_only_the_command_line_names_is_placed_there() -> None:
    document = overrides.parse(["trainng.steps=1"], {}).merged_onto(Document({}, {(): "x.yaml:3"}))
    assert document.where(("trainng",)) == "command line: trainng.steps=1"


@pytest.mark.parametrize("word", ["moe.token_dispatcher_type=alltoall", "eos_token=</s>", "text_key=body", "tokens=5"])
def test_a_setting_that_only_sounds_like_a_secret_is_taken(word: str) -> None:
    assert overrides.parse([word], {}).data


def test_a_secret_may_be_named_by_its_variable() -> None:
    assert overrides.parse(["hub.token=${HF_TOKEN}"], {"HF_TOKEN": "hidden"}).data == {"hub": {"token": "${HF_TOKEN}"}}


@pytest.mark.parametrize(
    ("words", "meant"),
    [(["--set", "a.b=1"], ""), (["-o", "a.b=1"], ""), (["+a.b=1"], "a.b"), (["++a.b=1"], "a.b")],
)
def test_what_other_tools_write_before_a_setting_is_dropped(words: list[str], meant: str) -> None:
    error = refused(*words)
    assert (error.options, error.meant) == ((words[0],), meant)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("overrides.a.b=1", "a.b"),
        ("--overrides.a.b 1", "--a.b"),
        ("exp_nme=x", "exp_name"),
        ("--worspace x", "--workspace"),
        ("a.b=1", ""),
    ],
)
def test_keys_at_the_top_of_an_experiment_are_meant_by_what_is_nearly_one(typed: str, meant: str) -> None:
    assert overrides.meant_at_top(f"command line: {typed}")[1] == meant
    assert overrides.meant_at_top("exp.yaml:3") == ("", "")
