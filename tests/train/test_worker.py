"""What a backend's worker begins with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from primus_train.kit import worker


def test_a_secret_in_what_was_planned_is_filled_in_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config").mkdir()
    planned = {"a": ["x-${MY_TOKEN}", "${HOME}", 3]}
    (tmp_path / "config/backend_config.json").write_text(json.dumps(planned))
    monkeypatch.setenv("MY_TOKEN", "abc")
    monkeypatch.setenv("PRIMUS_RUN_DIR", str(tmp_path))
    assert worker.resolved() == {"a": ["x-abc", "${HOME}", 3]}


def test_a_process_alone_is_rank_0(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    assert worker.rank() == 0
    monkeypatch.setenv("RANK", "5")
    assert worker.rank() == 5
