"""Configuration files: YAML 1.2, TOML, the place of each key, and `extends`."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from primus_core.config.document import Document, at, deep_merge, dotted
from primus_core.config.files import read, read_extended
from primus_core.errors import ConfigError
from primus_machine.documents.yaml_text import parse_value


def loaded(folder: Path, text: str, name: str = "x.yaml", **environ: str) -> Document:
    """The document that this text gives."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return read_extended(str(path), environ)


def refused(folder: Path, text: str, name: str = "x.yaml", **environ: str) -> ConfigError:
    """The error that this text gives."""
    with pytest.raises(ConfigError) as caught:
        loaded(folder, text, name, **environ)
    return caught.value


YAML_VALUES: dict[str, Any] = {
    "1e-5": 1e-5,
    "1E3": 1000.0,
    "-.5": -0.5,
    "3.": 3.0,
    "010": 10,
    "0o17": 15,
    "0x1F": 31,
    "+12": 12,
    "-0": 0,
    "12:30": "12:30",
    "1_000": "1_000",
    "yes": "yes",
    "No": "No",
    "on": "on",
    "y": "y",
    "true": True,
    "FALSE": False,
    "~": None,
    "null": None,
    "": None,
    "2024-01-01": "2024-01-01",
    "0b11": "0b11",
    "1.2.3": "1.2.3",
    "e5": "e5",
    "=": "=",
    "'1'": "1",
    '"true"': "true",
    "+.INF": math.inf,
    "-.inf": -math.inf,
    "[1, 2.0, a]": [1, 2.0, "a"],
    "{a: {b: 1e3}}": {"a": {"b": 1000.0}},
}


@pytest.mark.parametrize("text", YAML_VALUES)
def test_values_are_those_of_yaml_1_2_in_files_and_on_the_command_line(tmp_path: Path, text: str) -> None:
    expected = YAML_VALUES[text]
    in_file = loaded(tmp_path, f"x: {text}\n").data["x"]
    assert (in_file, type(in_file)) == (expected, type(expected))
    assert (parse_value(text), type(parse_value(text))) == (expected, type(expected))


@pytest.mark.parametrize("text", [".nan", ".NaN", ".NAN"])
def test_every_spelling_of_not_a_number_is_read(tmp_path: Path, text: str) -> None:
    assert math.isnan(loaded(tmp_path, f"x: {text}").data["x"])


printable = st.text(st.characters(min_codepoint=32, max_codepoint=0xD7FF, exclude_categories=["C"]), max_size=9)


@pytest.mark.full
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | printable,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(printable, inner, max_size=3),
        max_leaves=8,
    )
)
def test_any_json_on_a_command_line_is_the_value_that_it_says(value: Any) -> None:
    assert parse_value(json.dumps(value, ensure_ascii=False)) == value


@given(st.text(max_size=30))
def test_any_text_on_a_command_line_is_some_value_and_never_a_crash(text: str) -> None:
    value = parse_value(text)
    assert isinstance(value, str | int | float | bool | list | dict | None)


@pytest.mark.parametrize(
    "text",
    ["run #5", "# hi", "a: b", "- x", "a\nb", "&x", "!foo", "|", "--- a", "'a' b", "[1] # x", "[1,", "@x", "%x", "x:"],
)
def test_text_that_only_looks_like_yaml_stays_as_it_was_typed(text: str) -> None:
    assert parse_value(text) == text


def test_the_place_of_every_key_is_known(tmp_path: Path) -> None:
    text = "# a comment\na:\n  b: 1\n  c: {d: 2,\n      e: 3}\nl:\n  - x: 1\n  - y: 2\n"
    document = loaded(tmp_path, text)
    lines = {
        dotted(path): int(mark.rpartition(":")[2]) for path, mark in document.marks.items() if path and ":" in mark
    }
    assert lines == {"a": 2, "a.b": 3, "a.c": 4, "a.c.d": 4, "a.c.e": 5, "l": 6, "l.0.x": 7, "l.1.y": 8}
    assert document.where(("a", "c", "nothing", "here")) == f"{tmp_path}/x.yaml:4"
    assert document.where(("nothing",)) == f"{tmp_path}/x.yaml"


def test_a_duplicate_key_is_refused_with_both_lines(tmp_path: Path) -> None:
    error = refused(tmp_path, "a:\n  lr: 1\n  b: 2\n  lr: 3\n")
    assert error.where == f"{tmp_path}/x.yaml:4"
    assert "duplicate key 'lr'" in error.what
    assert f"{tmp_path}/x.yaml:2" in error.why


def test_a_variable_within_braces_is_named_as_what_yaml_cannot_read(tmp_path: Path) -> None:
    for text in ("a: {b: ${LR:5.0}}\n", "a: 1\nb: [1, ${LR}, {c: ${D:2}}]\n"):
        error = refused(tmp_path, text)
        assert "this is not valid YAML" in error.what
        assert error.fix.startswith("${...} is not allowed within { } or [ ]")
    assert refused(tmp_path, "a: 1\n b: 2\n").fix == "correct the YAML there; indent with spaces"


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("a: 1\n b: 2\n", 2, "this is not valid YAML"),
        ("a: [1, 2\n", 2, "this is not valid YAML"),
        ("a: *nowhere\n", 1, "this is not valid YAML"),
        ("a: 1\n---\nb: 2\n", 2, "this is not valid YAML"),
        ("a: 1\n\tb: 2\n", 2, "this is not valid YAML"),
        ("- a\n- b\n", 1, "keys and values at its top level"),
        ("just text\n", 1, "keys and values at its top level"),
        ("a: 1\n? [b]\n: 2\n", 2, "a key must be plain text"),
        ("a: 1\nb: !include other.yaml\n", 2, "unknown tag '!include'"),
        ("a: !!python/object:os.system x\n", 1, "unknown tag"),
        ("a: !!int abc\n", 1, "'abc' is not a valid int"),
        ("a: 1\nb: " + "9" * 5000, 2, "is not a valid int"),
        ("a: 1\nb: {<<: 3}\n", 2, "`<<` needs"),
    ],
)
def test_what_is_no_configuration_is_refused_with_its_line(tmp_path: Path, text: str, line: int, said: str) -> None:
    error = refused(tmp_path, text)
    assert error.where == f"{tmp_path}/x.yaml:{line}"
    assert said in error.what


@pytest.mark.parametrize("text", ["a: &a [*a]\n", "a: &a {b: *a}\n", "a: &a {<<: *a}\n"])
def test_an_alias_to_itself_is_refused(tmp_path: Path, text: str) -> None:
    assert "an alias refers to itself" in refused(tmp_path, text).what


def test_an_empty_file_is_an_empty_document_and_a_byte_order_mark_is_nothing(tmp_path: Path) -> None:
    assert loaded(tmp_path, "# only a comment\n").data == {}
    assert loaded(tmp_path, "\ufeffa: 1\n").data == {"a": 1}


def test_merge_keys_bring_what_the_mapping_does_not_say_itself(tmp_path: Path) -> None:
    text = (
        "a: &a {x: 1, y: 1}\nb: &b {y: 2, z: 2}\n"
        "one: {y: 9, <<: *a}\nmany: {<<: [*a, *b]}\nchain: &c {<<: *b, w: 3}\nlast: {<<: *c, z: 4}\n"
    )
    data = loaded(tmp_path, text).data
    assert data["one"] == {"x": 1, "y": 9}
    assert data["many"] == {"x": 1, "y": 1, "z": 2}, "an earlier source wins"
    assert data["last"] == {"y": 2, "w": 3, "z": 4}, "a merged mapping may have merged itself"


def test_a_file_that_is_missing_or_unreadable_is_an_error_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"there is no file .*nowhere\.yaml"):
        read(str(tmp_path / "nowhere.yaml"), {})
    with pytest.raises(ConfigError, match="it is a folder"):
        read(str(tmp_path), {})
    (tmp_path / "latin.yaml").write_bytes(b"a: \xe9\n")
    with pytest.raises(ConfigError, match=r"latin\.yaml: the file cannot be read"):
        read(str(tmp_path / "latin.yaml"), {})


TOML = """\
name = "x"

[training]   # a comment
steps = 10
layers = [
  [1],
  [2]
]
text = '''
seq_len = 5
[optimizer]
'''
"quoted" = 1
parallel.tensor = 2

[optimizer.inner]
lr = 1e-5

[[runs]]
id = 1
[[runs]]
id = 2
"""


def test_toml_is_read_with_the_lines_of_its_tables_and_keys(tmp_path: Path) -> None:
    document = loaded(tmp_path, TOML, "x.toml")
    assert document.data["optimizer"] == {"inner": {"lr": 1e-5}}
    lines = {
        "name": 1,
        "training": 3,
        "training.steps": 4,
        "training.layers": 5,
        "training.quoted": 13,
        "training.parallel.tensor": 14,
        "optimizer.inner": 16,
        "optimizer.inner.lr": 17,
    }
    for path, line in lines.items():
        assert document.where(tuple(path.split("."))) == f"{tmp_path}/x.toml:{line}", path
    assert document.where(("training", "seq_len")) == f"{tmp_path}/x.toml:3", "a line of a long string is no key"


def test_toml_that_is_none_is_refused_with_its_line(tmp_path: Path) -> None:
    assert refused(tmp_path, "a = 1\nb = \n", "x.toml").where == f"{tmp_path}/x.toml:2"
    assert refused(tmp_path, "a = 1\na = 2\n", "x.toml").where == f"{tmp_path}/x.toml:2"


def test_toml_text_is_interpolated_also_in_lists_and_dates_are_text(tmp_path: Path) -> None:
    text = 'a = ["${X}", {b = "${Y:d}"}]\nday = 2024-01-02\n'
    assert loaded(tmp_path, text, "x.toml", X="v").data == {"a": ["v", {"b": "d"}], "day": "2024-01-02"}
    error = refused(tmp_path, '[t]\na = "${NOT_SET}"\n', "x.toml")
    assert error.where == f"{tmp_path}/x.toml:2"


def test_a_later_base_wins_over_an_earlier_one_and_the_file_over_both(tmp_path: Path) -> None:
    (tmp_path / "bases").mkdir()
    (tmp_path / "bases/root.yaml").write_text("t: {a: 0, b: 0, c: 0, d: 0}\n")
    (tmp_path / "bases/one.yaml").write_text("extends: root.yaml\nt: {b: 1, c: 1, d: 1}\n")
    (tmp_path / "two.toml").write_text("[t]\nc = 2\nd = 2\n")
    document = loaded(tmp_path, "extends: [bases/one.yaml, ./two.toml]\nt:\n  d: 3\n")
    assert document.data == {"t": {"a": 0, "b": 1, "c": 2, "d": 3}}
    places = [Path(document.where(("t", key))).name for key in "abcd"]
    assert places == ["root.yaml:1", "one.yaml:2", "two.toml:2", "x.yaml:3"]


def test_one_base_may_be_reached_on_two_ways(tmp_path: Path) -> None:
    (tmp_path / "root.yaml").write_text("r: 1\n")
    for name in ("left", "right"):
        (tmp_path / f"{name}.yaml").write_text(f"extends: root.yaml\n{name}: 1\n")
    assert loaded(tmp_path, "extends: [left.yaml, right.yaml]\n").data == {"r": 1, "left": 1, "right": 1}


def test_files_that_extend_one_another_in_a_circle_are_named_with_the_line(tmp_path: Path) -> None:
    (tmp_path / "b.yaml").write_text("extends: c.yaml\n")
    (tmp_path / "c.yaml").write_text("n: 1\nextends: a.yaml\n")
    error = refused(tmp_path, "extends: b.yaml\n", "a.yaml")
    assert error.why == "a.yaml → b.yaml → c.yaml → a.yaml"
    assert error.where == f"{tmp_path}/c.yaml:2"
    assert "itself.yaml → itself.yaml" in refused(tmp_path, "extends: itself.yaml\n", "itself.yaml").why


def test_a_missing_base_is_refused_with_the_line_and_where_it_was_looked_for(tmp_path: Path) -> None:
    error = refused(tmp_path, "a: 1\nextends: gone.yaml\n")
    assert error.where == f"{tmp_path}/x.yaml:2"
    assert error.why == f"looked for {tmp_path}/gone.yaml"


@pytest.mark.parametrize("value", ["", "3", "{a: b}", "[a.yaml, 3]"])
def test_extends_takes_a_path_or_a_list_of_paths(tmp_path: Path, value: str) -> None:
    error = refused(tmp_path, f"extends: {value}\n")
    assert "`extends` takes a path or a list of paths" in error.what
    assert error.where == f"{tmp_path}/x.yaml:1"


nested = st.recursive(
    st.integers(), lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3), max_leaves=8
)
mappings = st.dictionaries(st.sampled_from("abc"), nested, max_size=3)


@pytest.mark.full
@given(mappings, mappings, mappings)
def test_merging_is_associative_and_changes_nothing(
    one: dict[str, Any], two: dict[str, Any], three: dict[str, Any]
) -> None:
    before = json.dumps([one, two, three])
    if not any(isinstance(at(two, (key,)), int) for key in two):  # a plain value cuts off what stood below it
        assert deep_merge(deep_merge(one, two), three).keys() == deep_merge(one, deep_merge(two, three)).keys()
    assert deep_merge(one, {}) == one == deep_merge({}, one)
    assert json.dumps([one, two, three]) == before


def test_dotted_keys_are_written_out_so_that_they_merge(tmp_path: Path) -> None:
    document = loaded(tmp_path, "t: {a: 1}\nt.b: 2\nt.c.d: 3\n..odd: 4\n").nested()
    assert document.data == {"t": {"a": 1, "b": 2, "c": {"d": 3}}, "..odd": 4}
    assert document.where(("t", "c", "d")) == f"{tmp_path}/x.yaml:3"
