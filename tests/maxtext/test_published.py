"""AMD's published experiments: which are accepted, and why the others are not, is what the documentation says."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("primus_maxtext", reason="primus-maxtext needs Python 3.12: hatch run maxtext:test")

from tests.train.published import documented, judged


def test_amds_published_experiments_are_judged_as_the_documentation_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    table = judged("maxtext", tmp_path, monkeypatch, capsys).strip()
    assert table in documented("maxtext"), table
