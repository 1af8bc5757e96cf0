"""Text that is on the machine is prepared once; what a stranger put in its place is not believed."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.core.test_trust import STRANGER, give, home, needs_root

from primus_data.training import files

__all__ = ["home"]


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
        files.main("x", lambda folder, *_: None, "kind", [*words, "--out", f"{tmp_path}/{out}"])

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
