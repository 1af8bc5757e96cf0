"""What a stranger put in the place of a training's own files is not believed."""

from __future__ import annotations

import ctypes
import json
import os
from pathlib import Path

import pytest
from tests.conftest import Run
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


@needs_root
@pytest.mark.parametrize(("mode", "handed"), [(0o777, False), (0o2775, False), (0o1777, True), (0o755, True)])
def test_what_others_can_replace_is_asked_about_again_inside(
    primus: Run, home: Path, tmp_path: Path, mode: int, handed: bool
) -> None:
    """A job may wait for hours: what was believed by its path may be another file when it begins."""
    work = tmp_path / "shared/mine"
    work.mkdir(parents=True)
    os.chown(work.parent, 0, STRANGER)
    work.parent.chmod(mode)
    (work / "primus.yaml").write_text("workspace: runs\n")
    shown = primus("--dry-run", "--json", "container", "--image", "img", "--", "mine", cwd=work)
    assert shown.returncode == 0, shown.stderr
    variables = {row["name"]: row["value"] for row in json.loads(shown.stdout)["environment"]}
    assert (f"{work}/primus.yaml" in variables["PRIMUS_TRUSTED"].split(":")) == handed
