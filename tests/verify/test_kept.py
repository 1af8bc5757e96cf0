"""What came of a layout is kept in a file that nobody else can have written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from primus_verify.comparison import Deviation
from primus_verify.kept import RESULT, Kept
from primus_verify.layouts import Layout
from primus_verify.session import Result


def result(layout: str) -> dict[str, Any]:
    """What a verification keeps of a layout that is equal."""
    return Result(Layout(layout, {}, 2), "equal", worst={"loss": Deviation(1, "loss", "", 0.0, 1e-4)}).to_dict()


def test_a_result_is_read_as_it_was_written_and_a_damaged_one_is_none(tmp_path: Path) -> None:
    kept = Kept(str(tmp_path / "verify"), {})
    assert kept.read("tp=2,pp=2") is None
    kept.write("tp=2,pp=2", result("tp=2,pp=2"))
    assert kept.read("tp=2,pp=2") == result("tp=2,pp=2")
    assert result("tp=2").keys() == RESULT
    assert kept.read("tp=2") is None
    kept.write("dp=2", result("dp=2"))
    kept.forget(["dp=2", "never tried"])
    assert kept.read("dp=2") is None
    (tmp_path / "verify" / "tp=2+pp=2.json").write_text('{"status"')
    assert kept.read("tp=2,pp=2") is None


@pytest.mark.parametrize(
    "found",
    [
        [],
        {"status": "equal", "findings": [], "worst": {}},
        result("tp=8"),
        {**result("tp=2"), "worst": {}},
        {**result("tp=2"), "status": "differs"},
        {**result("tp=2"), "status": "fine"},
        {**result("tp=2"), "findings": ["text"]},
    ],
)
def test_a_file_that_is_not_the_result_of_this_layout_is_none(found: Any, tmp_path: Path) -> None:
    kept = Kept(str(tmp_path / "verify"), {})
    kept.write("tp=2", found)
    assert kept.read("tp=2") is None


def test_a_folder_that_cannot_be_used_means_that_layouts_are_trained(tmp_path: Path) -> None:
    """A file in its place, or a folder in that of a result."""
    (tmp_path / "file").touch()
    (tmp_path / "verify/tp=2.json").mkdir(parents=True)
    for place in ("file", "verify"):
        kept = Kept(str(tmp_path / place), {})
        kept.forget(["tp=2"])
        kept.write("tp=2", result("tp=2"))
        assert kept.read("tp=2") is None


def test_what_others_could_have_written_is_not_believed(tmp_path: Path) -> None:
    kept = Kept(str(tmp_path / "verify"), {})
    kept.write("tp=2", result("tp=2"))
    (tmp_path / "verify/tp=2.json").chmod(0o666)
    assert kept.read("tp=2") is None
