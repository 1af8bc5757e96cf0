"""Lists of flags (`XLA_FLAGS`): read as XLA reads them, and laid together flag by flag."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests import rank_report
from tests.conftest import Run

from primus_core.environment.flag_lists import applied, name_of, together, words
from primus_core.environment.resolve import resolve
from primus_core.plan.plan import Variable

plain = st.from_regex(r"[A-Za-z0-9_.,/+-]{0,4}", fullmatch=True)
quoted = st.one_of(
    st.from_regex(r"'[^'\x00]{0,4}'", fullmatch=True), st.from_regex(r'"([^"\\\x00]|\\[^\x00]){0,4}"', fullmatch=True)
)
names = st.from_regex(r"--xla_[abc]", fullmatch=True)
flags = st.one_of(names, st.builds("{}={}".format, names, st.one_of(plain, quoted)))
lists = st.lists(flags, max_size=6)
spaces = st.text(" \t\n", min_size=1, max_size=3)


def layers(*texts: str) -> list[Variable]:
    """One layer for each text, lowest first, called by its number."""
    return [Variable("XLA_FLAGS", text, str(number)) for number, text in enumerate(texts)]


def laid(*texts: str) -> str:
    return together(layers(*texts)).value


@pytest.mark.full
@given(st.lists(st.tuples(flags, spaces), max_size=6))
def test_flags_are_read_as_they_are_written_whatever_space_is_between(found: list[tuple[str, str]]) -> None:
    assert words("".join(flag + space for flag, space in found)) == tuple(flag for flag, _ in found)


@given(st.text(max_size=12))
def test_any_text_is_flags_to_its_end_or_no_list(text: str) -> None:
    found = words(text)
    if found is not None:
        assert words(" ".join(found)) == found


@pytest.mark.parametrize("text", ["flags.txt", "--a=1 flags --b=2", "--a='x", '--a="x\\"', "=1"])
def test_what_xla_would_not_read_to_its_end_is_no_list(text: str) -> None:
    assert words(text) is None


@pytest.mark.full
@given(st.lists(lists, min_size=2, max_size=4))
def test_of_each_flag_the_last_layer_that_has_it_wins(said: list[list[str]]) -> None:
    found = words(laid(*(" ".join(one) for one in said))) or ()
    for name in {name_of(flag) for one in said for flag in one}:
        last = [one for one in said if name in map(name_of, one)][-1]
        assert [flag for flag in found if name_of(flag) == name] == [flag for flag in last if name_of(flag) == name]


@pytest.mark.full
@given(lists, lists)
def test_laying_a_layer_on_itself_or_on_nothing_changes_no_flag(one: list[str], two: list[str]) -> None:
    once = laid(" ".join(one), " ".join(two))
    assert words(laid(once, once)) == words(once)
    assert laid(" ".join(one), " ".join(two), " ".join(two)) == once
    assert sorted(words(laid("", " ".join(one))) or ()) == sorted(one)


@pytest.mark.full
@given(lists, lists)
def test_flags_keep_their_order_the_lower_layers_before_the_higher(one: list[str], two: list[str]) -> None:
    mine = list(dict.fromkeys(map(name_of, two)))
    theirs = [name for name in dict.fromkeys(map(name_of, one)) if name not in mine]
    found = [name_of(flag) for flag in words(laid(" ".join(one), " ".join(two))) or ()]
    assert list(dict.fromkeys(found)) == [*theirs, *mine]


def test_each_flag_tells_whence_it_is_and_what_it_won_over() -> None:
    low = [
        Variable("XLA_FLAGS", f"--a={n} --{o}", o, why=f"because of {o}") for n, o in ((1, "amd"), (2, "experiment"))
    ]
    [found] = resolve({"XLA_FLAGS": "--c --a=3"}, low=low, forced=())
    assert (found.value, found.origin) == ("--amd --experiment --c --a=3", "user, experiment, amd")
    assert [(flag.name, flag.value, flag.origin, flag.overrode) for flag in found.flags] == [
        ("--amd", "", "amd", ()),
        ("--experiment", "", "experiment", ()),
        ("--c", "", "user", ()),
        ("--a", "3", "user", (("2", "experiment"), ("1", "amd"))),
    ]
    assert found.flags[0].why == "because of amd"


@pytest.mark.parametrize("mine", ["flags.txt", "--a=1 flags.txt"])
def test_the_persons_text_that_is_no_list_stays_as_it_is_and_says_so(mine: str) -> None:
    [found] = resolve({"XLA_FLAGS": mine}, low=layers("--a=2"), forced=())
    assert (found.value, found.origin, found.flags) == (mine, "user", ())
    assert found.why == "your own environment; not a list of flags, so it is not merged"
    assert found.overrode == (("--a=2", "0"),)


def test_a_list_over_a_text_that_is_none_stands_for_it() -> None:
    found = together(layers("--a=1", "flags.txt", "--b=2", "--c=3"))
    assert found.value == "--b=2 --c=3"
    assert found.overrode == (("flags.txt", "1"), ("--a=1", "0"))


def test_one_secret_hides_all_flags() -> None:
    found = together([*layers("--a=1"), Variable("XLA_FLAGS", "--b=hidden", "--env", secret=True)])
    assert (found.secret, found.flags) == (True, ())


def test_other_variables_are_not_lists() -> None:
    assert applied({"A": "--a", "XLA_FLAGS": "--a"}, [Variable("A", "--b", ""), Variable("XLA_FLAGS", "--b", "")]) == {
        "A": "--b",
        "XLA_FLAGS": "--a --b",
    }


@pytest.fixture
def project(tmp_path: Path) -> dict[str, str]:
    """A folder with two hooks that say flags, and the environment with a task that shows what it got."""
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    (tmp_path / "primus.yaml").write_text("{}\n")
    (hooks / "01_one.sh").write_text("echo env.XLA_FLAGS=--xla_hook=1\n")
    (hooks / "02_two.sh").write_text(
        'case "$XLA_FLAGS" in *--xla_mine=1*--xla_hook=1*) echo env.XLA_FLAGS=--xla_both=seen ;; esac\n'
    )
    return {"PYTHONPATH": rank_report.write(tmp_path / "site"), "XLA_FLAGS": "--xla_mine=1 --xla_both=0 --xla_option=0"}


@pytest.mark.full
def test_person_hooks_and_options_each_say_some_flags_and_a_replay_has_the_same(
    primus: Run, project: dict[str, str], tmp_path: Path
) -> None:
    result = primus("direct", "--env", "XLA_FLAGS=--xla_option=1", "--", "rank_report", env=project)
    assert result.returncode == 0, result.stderr
    got = json.loads(result.stdout.splitlines()[0])["XLA_FLAGS"]
    assert got == "--xla_mine=1 --xla_hook=1 --xla_both=seen --xla_option=1"
    again = primus("replay", "output/rank_report", env={**project, "XLA_FLAGS": "--xla_other=1"})
    assert again.returncode == 0, again.stderr
    assert set(json.loads(again.stdout.splitlines()[0])["XLA_FLAGS"].split()) == set(got.split())


def test_explain_has_a_row_for_each_flag_and_a_dry_run_a_line(primus: Run, project: dict[str, str]) -> None:
    words = ("--env", "XLA_FLAGS=--xla_option=1")
    shown = primus("env", "explain", "XLA_FLAGS", *words, env=project).stdout.splitlines()
    assert shown[2].split()[:4] == ["XLA_FLAGS", "3", "flags:", "--env,"]
    assert shown[5].split()[:6] == ["--xla_option", "1", "--env", "0", "(user)", "given"]
    [row] = json.loads(primus("env", "explain", "XLA_FLAGS", "--json", *words, env=project).stdout)["variables"]
    assert [flag["name"] for flag in row["flags"]] == ["--xla_mine", "--xla_both", "--xla_option"]
    dry = primus("direct", "--dry-run", *words, "--", "rank_report", env=project).stdout
    assert "#     --xla_option=1  (--env: given for this run; instead of 0 (user))" in dry


@pytest.mark.parametrize(
    ("values", "what"),
    [(("--a=1 --b=2", "--c=3 --b=4"), "--b is set twice"), (("a=1",), "XLA_FLAGS = 'a=1' is not a list of flags")],
)
def test_a_profile_may_have_a_row_for_each_flag_and_only_one(
    primus: Run, tmp_path: Path, values: tuple[str, ...], what: str
) -> None:
    rows = "".join(f'[[variable]]\nname = "XLA_FLAGS"\nvalue = "{value}"\n' for value in values)
    (tmp_path / "mine.toml").write_text(rows)
    refused = primus("env", "show", "--profile", "mine.toml")
    assert refused.returncode == 2
    assert what in refused.stderr
