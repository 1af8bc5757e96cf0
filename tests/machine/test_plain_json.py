"""No file and no output of Primus holds a number that JSON does not know."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from primus_machine.files import plain_json

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inside: st.lists(inside) | st.dictionaries(st.text(), inside) | st.tuples(inside, inside),
)


def refuse(word: str) -> None:
    raise AssertionError(word)


def plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


@pytest.mark.full
@given(VALUES)
def test_what_is_not_finite_is_null_and_all_else_as_it_was(value: Any) -> None:
    assert json.loads(plain_json.dumps(value), parse_constant=refuse) == plain(value)


def test_options_are_those_of_json() -> None:
    assert plain_json.dumps({"ä": math.nan}, indent=1, ensure_ascii=False) == '{\n "ä": null\n}'


def test_a_number_of_thousands_of_digits_is_refused_without_a_word_of_python() -> None:
    with pytest.raises(ValueError, match=r"^a number in it has thousands of digits$"):
        plain_json.loads("9" * 5000)
