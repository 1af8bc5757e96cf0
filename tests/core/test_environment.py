"""`--env` in its forms, and which value of a variable a run gets."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import Run

from primus_core.environment.resolve import from_options, of_experiment, resolve
from primus_core.errors import ConfigError, RequestError
from primus_core.plan.plan import Variable

names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,6}", fullmatch=True)


def values(*options: str, **environ: str) -> dict[str, str]:
    """The variables that these options give."""
    return {variable.name: variable.value for variable in from_options(options, environ)}


def refused(*options: str, **environ: str) -> RequestError:
    """The error that these options give."""
    with pytest.raises(RequestError) as caught:
        from_options(options, environ)
    return caught.value


@given(names, st.text(st.characters(exclude_characters="\0"), max_size=20))
def test_a_value_on_the_command_line_is_taken_byte_for_byte(name: str, value: str) -> None:
    assert values(f"{name}={value}") == {name: value}


def test_quotes_on_the_command_line_are_part_of_the_value() -> None:
    assert values('A="b"', "B=") == {"A": '"b"', "B": ""}


def test_a_name_alone_passes_its_value_on() -> None:
    assert values("A", A="x y") == {"A": "x y"}


def test_a_later_option_wins_over_an_earlier_one() -> None:
    assert values("A=1", "A=2") == {"A": "2"}


def test_a_file_holds_comments_exports_quotes_and_names(tmp_path: Path) -> None:
    path = tmp_path / "run.env"
    path.write_text(
        "# a comment\n\nA=1\nexport B='two words'\n  C=\"x=y\"  \nD=it\\'s\nE=a # b\nPASSED\nF=\r\n", encoding="utf-8"
    )
    assert values(str(path), PASSED="on") == {
        "A": "1",
        "B": "two words",
        "C": "x=y",
        "D": "it's",
        "E": "a",
        "PASSED": "on",
        "F": "",
    }
    assert {variable.origin for variable in from_options([str(path)], {"PASSED": "on"})} == {f"--env {path}"}


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("export A=3555   # fixed by the site", "3555"),
        ("A='#5'", "#5"),
        ("A=v#5", "v#5"),
        ('A="scratch/${JOB}"', "scratch/7"),
        ("A=$JOB-${GONE:-x}", "7-x"),
        ("A='${JOB}'", "${JOB}"),
        ("A=\"a\"'b'c", "abc"),
        ("\ufeffA=1\r", "1"),
        ('A="two\nlines"', "two\nlines"),
        ("A=1; B=2", "1"),
        ('declare -x A="1 2"', "1 2"),
        ("B=1\nA=$B", "1"),
        ("A=1\nexport A", "1"),
        ("A=1; declare -x A OF_HERE", "1"),
        ("A=~/x", "/home/ada/x"),
        ("A=~;B=2", "/home/ada"),
        ("A=/x:~/b:y~:~", "/x:/home/ada/b:y~:/home/ada"),
        ('A=x=~/b":"~/c', "x=~/b:~/c"),
        ('A="^x$"', "^x$"),
        ("A='a$$b$1'", "a$$b$1"),
    ],
)
def test_a_file_is_read_as_a_shell_reads_assignments(tmp_path: Path, line: str, value: str) -> None:
    (tmp_path / "x.env").write_bytes(f"{line}\n".encode())
    assert values(str(tmp_path / "x.env"), JOB="7", A="of here", OF_HERE="", HOME="/home/ada")["A"] == value


@pytest.mark.parametrize(
    "line",
    [
        "A='open",
        "A=two words",
        "A=$(hostname)",
        "A=`hostname`",
        "A=${GONE}",
        "A=x|y",
        "A=${B%/*}",
        "source x",
        'A="pa$$"',
        "A=a$1",
        "export",
        "declare -x  # nothing",
        "export ;A=1",
        "export -n A=1",
        "export -p",
        "A=~root/x",
        "A=~+/x",
        "A=x:~root/x",
        "fi",
    ],
)
def test_what_a_shell_would_run_or_not_find_is_refused_with_its_line(tmp_path: Path, line: str) -> None:
    (tmp_path / "x.env").write_text(f"B=1\n{line}\n")
    assert refused(str(tmp_path / "x.env")).what.startswith(f"{tmp_path}/x.env:2: ")


@pytest.mark.parametrize(
    ("line", "fix"),
    [
        *(
            (line, "write the value itself: Primus runs no commands of this file")
            for line in ("A=$(x)", "A=`x`", 'A="`x`"')
        ),
        ("A=1 && B=2", "put each assignment on a line of its own"),
        ("A=(a b)", "write one text: a variable of the environment holds no list"),
        ("A=x?a=1&b=2", "put the value into single quotes"),
        ("A=${B/c/d}", "write the value itself; a '$' that belongs to it: in single quotes"),
        ('A=${B:-"c"}', "write the default as plain text, without quotes and references"),
        ("A+=x", "for example A=${A}x"),
        ("A =1", "write NAME=VALUE, without blanks around '='; Primus runs no commands of this file"),
        ("A=1 2", "quote a value with blanks: NAME='a b'; Primus runs no commands of this file"),
        (
            "export A=1 B",
            "quote a value with blanks: NAME='a b', or set B, which is passed on; Primus runs no commands of this file",
        ),
        ("export A=1 2x", "quote a value with blanks: NAME='a b'; Primus runs no commands of this file"),
    ],
)
def test_the_advice_for_a_line_keeps_what_it_was_meant_to_say(tmp_path: Path, line: str, fix: str) -> None:
    (tmp_path / "x.env").write_text(f"{line}\n")
    assert refused(str(tmp_path / "x.env")).fix == fix


def test_a_setting_wins_over_a_file_wherever_it_stands(tmp_path: Path) -> None:
    for name, text in (("one", "A=file1\nB=file1\n"), ("two", "B=file2\n")):
        (tmp_path / name).write_text(text)
    one, two = str(tmp_path / "one"), str(tmp_path / "two")
    assert values("A=option", one, two) == {"A": "option", "B": "file2"}
    assert values(one, two, "A=option") == {"A": "option", "B": "file2"}
    [a, _] = resolve({"A": "mine"}, low=(), forced=(), options=from_options(["A=option", one], {}))
    assert a.overrode == (("file1", f"--env {one}"), ("mine", "user"))


def test_the_command_line_wins_over_primus_yaml_in_a_file_too(tmp_path: Path, primus: Run) -> None:
    (tmp_path / "primus.yaml").write_text("direct: {env: [A=yaml, B=yaml, C=yaml, site.env]}\n")
    (tmp_path / "site.env").write_text("B=site\nD=site\n")
    (tmp_path / "run.env").write_text("A=file\nB=file\nD=file\n")
    shown = primus("env", "explain", "--json", "--env", "B=option", "--env", "run.env").stdout
    found = {one["name"]: one["value"] for one in json.loads(shown)["variables"]}
    assert {name: found[name] for name in "ABCD"} == {"A": "file", "B": "option", "C": "yaml", "D": "file"}


@pytest.mark.parametrize("option", ["A B=1", "1A=2", "=x", "a-b=1", "A\n=1"])
def test_a_name_that_no_variable_can_have_is_quoted(option: str) -> None:
    name = option.partition("=")[0]
    assert refused(option).what == f"--env: {name!r} cannot be the name of a variable"


@pytest.mark.parametrize("option", ["./gone.env", "gone.env", "site/gone"])
def test_a_file_that_is_missing_is_told_as_one(option: str) -> None:
    assert refused(option).what == f"there is no file '{option}'"


@pytest.mark.parametrize("option", ["gone-1", ""])
def test_what_is_neither_setting_nor_name_nor_file_is_refused(option: str) -> None:
    error = refused(option)
    assert error.what.endswith("is neither NAME=VALUE, nor the NAME of a variable, nor a file")
    assert error.fix == "for example --env NCCL_DEBUG=INFO"


def test_a_name_that_is_not_set_is_refused() -> None:
    error = refused("HF_TOKEN")
    assert error.what == "--env: HF_TOKEN is not set, so it has no value to pass on"
    assert error.fix == "export HF_TOKEN=..., or write --env HF_TOKEN=VALUE"


def test_a_wrong_line_of_a_file_is_refused_with_its_number(tmp_path: Path) -> None:
    (tmp_path / "x.env").write_text("A=1\n\nnot a setting\n")
    assert refused(str(tmp_path / "x.env")).what.startswith(f"{tmp_path}/x.env:3: 'not a setting' is neither")


def test_all_mistakes_of_a_file_are_said_and_what_follows_from_them_is_none(tmp_path: Path) -> None:
    lines = ['A="$(date)"', "B=$A", "not a setting", "C=${GONE} # 'x", "D=1 E=`id`; F=2", "1G=2", "H='", "I=$GONE"]
    (tmp_path / "x.env").write_text("\n".join(lines) + "\n")
    found = [error.what.removeprefix(f"{tmp_path}/x.env:")[0] for error in refused(str(tmp_path / "x.env")).each()]
    assert found == ["1", "3", "4", "5", "6", "7"]


def test_a_value_that_no_environment_can_carry_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.env").write_bytes(b"A=1\0\n")
    assert "contains a NUL character" in refused(str(tmp_path / "x.env")).what
    (tmp_path / "x.env").write_text("A=1\n", encoding="utf-16")
    assert refused(str(tmp_path / "x.env")).what.endswith("x.env: the file is UTF-16")


@pytest.mark.parametrize(
    ("option", "secret"),
    [("HF_TOKEN=x", True), ("A=hf_" + "x" * 24, True), ("PROXY=http://u:p@h", True), ("NCCL_DEBUG=INFO", False)],
)
def test_a_secret_is_marked_by_its_name_or_shape(option: str, secret: bool) -> None:
    assert from_options([option], {})[0].secret is secret


LAYERS = ("base", "model", "network", "backend", "experiment", "user", "hook", "place", "option")
"""Low to high; the first five are `low`."""


def layer(origin: str, names: Iterable[str]) -> tuple[Variable, ...]:
    """Variables of one layer: each has the layer's name as its value, too."""
    return tuple(Variable(name, origin, origin) for name in names)


@given(st.dictionaries(names, st.sets(st.sampled_from(LAYERS), min_size=1), max_size=8))
@pytest.mark.full
def test_the_highest_layer_that_speaks_of_a_name_wins_over_the_others(spoken: dict[str, set[str]]) -> None:
    by_layer = {origin: layer(origin, [name for name in spoken if origin in spoken[name]]) for origin in LAYERS}
    found = resolve(
        {v.name: v.value for v in by_layer["user"]},
        low=[v for origin in LAYERS[:5] for v in by_layer[origin]],
        hooks=by_layer["hook"],
        forced=by_layer["place"],
        options=by_layer["option"],
    )
    only_the_persons = {name for name, origins in spoken.items() if origins == {"user"}}
    assert [v.name for v in found] == sorted(spoken.keys() - only_the_persons)
    for variable in found:
        strongest_first = [origin for origin in reversed(LAYERS) if origin in spoken[variable.name]]
        assert (variable.value, variable.origin) == (strongest_first[0], strongest_first[0])
        assert variable.overrode == tuple((origin, origin) for origin in strongest_first[1:])


@given(st.lists(st.tuples(st.sampled_from("AB"), st.text("12", max_size=2)), max_size=6))
def test_of_several_low_layers_the_last_wins(claims: list[tuple[str, str]]) -> None:
    low = [Variable(name, value, str(number)) for number, (name, value) in enumerate(claims)]
    assert {v.name: v.value for v in resolve({}, low=low, forced=())} == dict(claims)


def test_what_the_person_set_to_the_same_value_is_still_theirs() -> None:
    [variable] = resolve({"A": "1"}, low=(Variable("A", "1", "profile amd"),), forced=())
    assert (variable.origin, variable.overrode) == ("user", (("1", "profile amd"),))


def test_a_forced_value_that_repeats_the_persons_or_an_options_did_not_win_over_it() -> None:
    place = (Variable("NNODES", "2", "user"), Variable("MASTER_PORT", "5", "user"), Variable("RUN", "new", "primus"))
    option = Variable("MASTER_PORT", "5", "--env")
    found = resolve({"NNODES": "2", "MASTER_PORT": "4", "RUN": "old"}, low=(), forced=place, options=(option,))
    assert [(v.name, v.origin, v.overrode) for v in found] == [
        ("MASTER_PORT", "--env", (("4", "user"),)),
        ("NNODES", "user", ()),
        ("RUN", "primus", (("old", "user"),)),
    ]


def test_the_persons_other_variables_are_there_only_when_families_are_asked_for() -> None:
    environ = {"NCCL_DEBUG": "INFO", "HOME": "/root", "SLURM_JOB_ID": "1", "PRIMUS_TEST_X": "1"}
    assert resolve(environ, low=(), forced=()) == ()
    assert [v.name for v in resolve(environ, low=(), forced=(), families=True)] == ["NCCL_DEBUG"]


def test_one_secret_among_the_values_of_a_name_hides_them_all() -> None:
    [plain] = resolve({"A": "hf_" + "x" * 24}, low=(), forced=(), options=layer("option", ["A"]))
    assert plain.secret
    [named] = resolve({"HF_TOKEN": "x"}, low=(), forced=(), families=True)
    assert named.secret


def test_a_secret_in_the_experiments_env_is_filled_in_and_marked() -> None:
    [variable] = of_experiment({"OTHER": "${HF_TOKEN}"}, {"HF_TOKEN": "hidden-1"}, lambda _: "x.yaml:2")
    assert (variable.value, variable.secret) == ("hidden-1", True)


@pytest.mark.parametrize("name", ["A=B", "9", "RANK", "PRIMUS_RUN_DIR"])
def test_the_experiments_env_cannot_set_what_is_no_name_or_primuss_own(name: str) -> None:
    with pytest.raises(ConfigError, match=r"x\.yaml:2"):
        of_experiment({name: 1}, {}, lambda _: "x.yaml:2")


@pytest.mark.parametrize("option", ["RANK=7", "WORLD_SIZE=2", "PRIMUS_RUN_DIR=/x"])
def test_an_option_cannot_set_what_primus_sets(option: str) -> None:
    with pytest.raises(RequestError, match="Primus sets it itself"):
        from_options([option], {})


def test_what_the_machine_is_read_by_is_refused_where_it_would_come_too_late() -> None:
    with pytest.raises(RequestError, match="before planning"):
        from_options(["PRIMUS_GPU_MODEL=MI300X"], {})
    with pytest.raises(ConfigError, match="before planning"):
        of_experiment({"PRIMUS_GPU_MODEL": "MI300X"}, {}, lambda _: "x.yaml:2")
