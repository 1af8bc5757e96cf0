"""`${VAR}` in configuration text."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from primus_core.config.files import read
from primus_core.errors import ConfigError
from primus_machine.interpolation import interpolate

plain = st.text(st.characters(exclude_characters="${}", exclude_categories=["Cs"]), max_size=12)


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("${A}", "1"),
        ("x${A}y${B}z", "x1y2z"),
        ("${NO:d}", "d"),
        ("${NO:}", ""),
        ("${A:d}", "1"),
        ("${NO:${B}}", "2"),
        ("${NO:${NEITHER:${B}-x}}", "2-x"),
        ("${NO:http://h:80/}", "http://h:80/"),
        ("$${A}", "${A}"),
        ("a$${A}b${A}", "a${A}b1"),
        ("$A $ {A}", "$A $ {A}"),
        ("", ""),
    ],
)
def test_variables_defaults_and_escapes_are_filled_in(text: str, result: str) -> None:
    assert interpolate(text, {"A": "1", "B": "2"}) == result


@given(st.lists(st.tuples(plain, plain), max_size=5), plain)
def test_text_around_variables_is_kept(pieces: list[tuple[str, str]], end: str) -> None:
    environ = {f"V{index}": value for index, (_, value) in enumerate(pieces)}
    text = "".join(f"{before}${{V{index}}}" for index, (before, _) in enumerate(pieces)) + end
    assert interpolate(text, environ) == "".join(before + value for before, value in pieces) + end


@given(st.text("${}:A$ x", max_size=20))
def test_any_text_is_filled_in_or_refused(text: str) -> None:
    fix = "none needed"
    try:
        interpolate(text, {"A": "1"})
    except ConfigError as error:
        fix = error.fix
    assert fix


@given(plain)
def test_a_value_is_not_interpolated_again(value: str) -> None:
    assert interpolate("${A}", {"A": "${B}" + value}) == "${B}" + value


def test_an_unset_variable_is_refused_with_its_place_and_what_to_do() -> None:
    with pytest.raises(ConfigError) as caught:
        interpolate("/data/${DATA_DIR}", {}, "x.yaml:7")
    assert caught.value.what == "x.yaml:7: ${DATA_DIR} is not set"
    assert caught.value.fix == "export DATA_DIR=..., or give a default: ${DATA_DIR:value}"


def test_no_default_is_proposed_for_a_secret() -> None:
    with pytest.raises(ConfigError) as caught:
        interpolate("${MY_SERVICE_TOKEN}", {}, "x.yaml:7")
    assert caught.value.fix == "export MY_SERVICE_TOKEN=..."


def test_a_default_that_is_not_needed_may_name_unset_variables() -> None:
    assert interpolate("${A:${NOT_SET}}", {"A": "1"}) == "1"


def test_a_variable_that_is_not_closed_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"'\$\{A:\$\{B\}' is not closed"):
        interpolate("x ${A:${B}", {"A": "1"})


def test_a_secret_stays_a_reference_but_must_be_set() -> None:
    assert interpolate("Bearer ${HF_TOKEN}", {"HF_TOKEN": "hf_abc"}) == "Bearer ${HF_TOKEN}"
    with pytest.raises(ConfigError, match="HF_TOKEN"):
        interpolate("${HF_TOKEN}", {})


def test_in_a_file_an_unquoted_variable_takes_its_type_and_a_quoted_one_stays_text(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text("a: ${N}\nb: '${N}'\nc: ${LR:1e-5}\nd: ${T}\ne: |\n  x: ${N}\nf: [ '${T}' ]\n")
    data = read(str(path), {"N": "3", "T": "a: title #1"}).data
    assert data == {"a": 3, "b": "3", "c": 1e-5, "d": "a: title #1", "e": "x: 3\n", "f": ["a: title #1"]}


def test_in_a_file_the_error_names_the_line_of_the_variable(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text("a: 1\nb:\n  - x\n  - ${NOT_SET}\n")
    with pytest.raises(ConfigError) as caught:
        read(str(path), {})
    assert caught.value.where == f"{path}:4"
