"""Versions are compared as pip compares them."""

from __future__ import annotations

from primus_train.kit import versions


def test_a_release_candidate_comes_before_its_release_and_before_later_ones() -> None:
    told = ["0.19.10", "0.19.2", "0.19.2rc1", "0.9", "0.19.2.post1", "0.19.2+cpu"]
    expected = ["0.9", "0.19.2rc1", "0.19.2", "0.19.2+cpu", "0.19.2.post1", "0.19.10"]
    assert sorted(told, key=versions.order) == expected


def test_suffixes_are_no_part_of_the_release() -> None:
    assert versions.release("0.19.2rc1+cpu") == (0, 19, 2)
    assert versions.release("2.13.0a0+git1a2b3c4") == (2, 13, 0)
