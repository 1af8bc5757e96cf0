"""Small numbers stand for large ones."""

from __future__ import annotations

import pytest

from primus_train.kit.alike import alike, degrees_of


@pytest.mark.parametrize(
    ("real", "least", "degrees", "multiple", "small"),
    [
        (64, 4, {1, 2}, 1, 4),
        (61, 4, {1, 2}, 1, 5),
        (9, 4, {1, 2, 3}, 1, 9),
        (96, 4, {8}, 1, 8),
        (40, 2, {16}, 1, 2),
        (48, 4, {1, 3}, 2, 6),
        (2, 4, {1, 2}, 1, 2),
    ],
)
def test_the_same_degrees_divide_it(real: int, least: int, degrees: set[int], multiple: int, small: int) -> None:
    assert alike(real, least, degrees, multiple) == small


def test_degrees_of_several_axes_multiply_in_each_layout() -> None:
    assert degrees_of([{"pp": 2, "vpp": 2}, {"pp": 3}, {"tp": 8}], "pp", "vpp") == {4, 3, 1}
