"""Golden values that are damaged: what `primus ci` says before it starts anything."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from primus_bench.ci import command
from primus_core.errors import RequestError

_CHECKS = "checks: {small: {run: direct --single -- learn 2, compare: {loss: 1%}}}\n"


def _spoil(golden: Path, how: str) -> None:
    if how == "folder":
        golden.mkdir()
    elif how == "FIFO":
        os.mkfifo(golden)
    else:
        golden.write_bytes(how.encode("latin-1"))


@pytest.mark.parametrize("how", ["", '{"schema": 1, "los', "[]", "null", "\x00\xff", '{"schema": 2}', "folder", "FIFO"])
def test_a_dry_run_refuses_damaged_golden_values_as_the_run_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    (tmp_path / "primus-ci.yaml").write_text(_CHECKS)
    monkeypatch.chdir(tmp_path)
    _spoil(tmp_path / "primus-ci.golden.json", how)
    for more in (["--dry-run"], []):
        with pytest.raises(RequestError) as refused:
            command.run(["--only", "small", *more], "")
        assert "primus-ci.golden.json" in str(refused.value)
    assert not (tmp_path / "output").exists()
