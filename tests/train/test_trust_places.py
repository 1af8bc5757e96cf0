"""What a stranger put in the place of a training's own files is not believed."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest
from tests.core.test_trust import STRANGER, give, home, needs_root, public

from primus_core.errors import RequestError
from primus_train.kit import worker

__all__ = ["home", "public"]


@needs_root
def test_a_worker_reads_no_settings_from_a_directory_in_place_of_its_runs(
    public: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = public / "run"
    run.mkdir()
    monkeypatch.setenv("PRIMUS_RUN_DIR", str(run))
    (run / "config").mkdir()
    (run / "config/backend_config.json").write_text('{"steps": 1}')
    assert worker.resolved() == {"steps": 1}
    give(run)
    with pytest.raises(RequestError, match="is not trusted"):
        worker.resolved()
    libc = ctypes.CDLL(None)
    libc.setfsuid(STRANGER)  # as on a file system that shows the person as somebody else
    try:
        assert worker.resolved() == {"steps": 1}
    finally:
        libc.setfsuid(0)
