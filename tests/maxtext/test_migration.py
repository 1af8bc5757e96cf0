"""What MaxText renamed and removed: the table fits the lists of settings that the package ships."""

from __future__ import annotations

import pytest

pytest.importorskip("primus_maxtext", reason="primus-maxtext needs Python 3.12: hatch run maxtext:test")

from primus_maxtext.backend import MAXTEXT
from primus_maxtext.migration import _ROWS
from primus_train.migration import Fate, read_rows


def test_every_new_name_is_one_of_the_newest_version_and_no_old_one_is() -> None:
    migration = MAXTEXT.migration("0.2.5")
    for name, row in read_rows(_ROWS).items():
        assert name not in migration.known
        assert "gone" in row or row["to"] in migration.known


def test_renamed_and_removed_settings() -> None:
    migration = MAXTEXT.migration("0.2")
    assert migration.fate("index_topk", 8) == Fate(to="indexer_topk", why="renamed in MaxText 0.2.1")
    assert migration.fate("indexer_topk", 8) is None
    found = migration.fate("ici_tensor_transpose_parallelism", 1)
    assert found
    assert found.why == "removed from MaxText in 0.2.4: tensor transpose parallelism was removed"
