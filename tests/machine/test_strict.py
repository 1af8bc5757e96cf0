"""Data from outside as dataclasses: nothing is converted."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from primus_machine import strict


@dataclass(frozen=True, slots=True)
class _Inner:
    sizes: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Outer:
    count: int = 0
    is_right: bool = True
    inner: _Inner | None = None


@pytest.mark.parametrize(
    "data",
    [
        {"count": "1"},
        {"count": 1.0},
        {"count": True},
        {"is_right": 1},
        {"is_right": "false"},
        {"inner": {"sizes": ["1"]}},
    ],
)
def test_a_value_of_another_type_is_refused(data: dict[str, Any]) -> None:
    with pytest.raises(strict.ValidationError):
        strict.read(_Outer, data)


def test_a_whole_number_is_a_number() -> None:
    assert strict.read(_Outer, {"inner": {"sizes": [1, 2.5]}}) == _Outer(inner=_Inner([1, 2.5]))
