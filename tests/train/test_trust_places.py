"""What a stranger put in the place of a training's own files is not believed."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest
from tests.core.test_trust import STRANGER, give, home, needs_root, public

from primus_core.errors import RequestError
from primus_train.kit import worker
from primus_train.text import files as text_files

__all__ = ["home", "public"]


@needs_root
def test_text_that_a_stranger_prepared_is_not_trained_on(
    tmp_path: Path, home: Path, clean_environ: dict[str, str], monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """In a cache that others can write to, they know the name that the result will have."""
    (tmp_path / "text").mkdir()
    (tmp_path / "text/a.txt").write_text("abc")
    words = ["--source", f"{tmp_path}/text", "--vocab-size", "300", "--cache", f"{tmp_path}/cache"]

    def prepare(out: str) -> None:
        text_files.main("x", lambda folder, *_: None, "kind", [*words, "--out", f"{tmp_path}/{out}"])

    prepare("one")
    prepare("two")
    assert (tmp_path / "one").resolve() == (tmp_path / "two").resolve()
    give((tmp_path / "one").resolve())
    with pytest.raises(SystemExit) as ended:
        prepare("three")
    assert ended.value.code == 2
    assert f"it belongs to uid {STRANGER}" in capsys.readouterr().err
    assert not (tmp_path / "three").exists()
    monkeypatch.setenv("PRIMUS_TRUSTED", f"{tmp_path}/cache")
    prepare("three")


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
