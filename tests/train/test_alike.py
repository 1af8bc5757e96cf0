"""Small numbers stand for large ones."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from primus_train.kit.alike import alike, batch_of, degrees_of, refuse_remainder


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


def test_the_batch_is_the_smallest_multiple_that_all_layouts_divide_unless_it_is_too_large() -> None:
    def unit(layout: Mapping[str, int]) -> int:
        return 2 * layout.get("dp", 1)

    assert batch_of([{"dp": 2}, {"tp": 8}], unit) == 8
    assert batch_of([{"dp": 8}, {"dp": 3}], unit) == 48
    assert batch_of([{"dp": 1000}, {"dp": 8}], unit) == 16
    refuse_remainder(48, 16)
    with pytest.raises(ValueError, match="needs a multiple of 2000 sequences in a step, and verify chose 16"):
        refuse_remainder(16, 2000)
