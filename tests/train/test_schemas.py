"""Versions of frameworks have schemas, in the order in which pip compares them."""

from __future__ import annotations

from pathlib import Path

from primus_train.kit import schemas


def test_the_newest_schema_is_the_one_of_the_newest_version(tmp_path: Path) -> None:
    for version in ("0.19.2rc1", "0.19.10", "0.19.9"):
        (tmp_path / f"it-{version}.json").touch()
    assert list(schemas.shipped(tmp_path, "it")) == ["0.19.2rc1", "0.19.9", "0.19.10"]
