"""What came of a layout is known as long as nothing that counts has changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from primus_verify.kept import Kept, fingerprint

RESULT = {"status": "equal", "findings": [], "worst": {}}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A framework with one module, and a file that is no code."""
    folder = tmp_path / "some_framework"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "model.py").write_text("x = 1")
    (folder / "notes.txt").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    return folder


def of(*texts: str, **environ: str) -> str:
    """The fingerprint of the framework."""
    return fingerprint(("some_framework",), environ, *texts)


def test_a_changed_module_a_new_one_and_another_text_count(package: Path) -> None:
    seen = {of("a"), of("b"), of("a", "b"), of("ab")}
    (package / "model.py").write_text("x = 22")
    seen.add(of("a"))
    (package / "new.py").write_text("")
    seen.add(of("a"))
    assert len(seen) == 6


def test_a_file_that_is_no_code_does_not_count(package: Path) -> None:
    before = of("a")
    (package / "notes.txt").write_text("longer")
    assert of("a") == before


def test_files_of_pythonpath_count_and_a_package_of_unknown_files_is_never_the_same(
    package: Path, tmp_path: Path
) -> None:
    (tmp_path / "own.py").write_text("x = 1")
    before = of(PYTHONPATH=f"/nowhere:{tmp_path}")
    assert of(PYTHONPATH=f"/nowhere:{tmp_path}") == before
    (tmp_path / "own.py").write_text("x = 22")
    assert of(PYTHONPATH=f"/nowhere:{tmp_path}") != before
    assert fingerprint(("no_such_package",), {}) != fingerprint(("no_such_package",), {})


def test_files_behind_links_count_and_a_link_that_leads_back_or_nowhere_is_no_matter(
    package: Path, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (package / "layers").symlink_to(elsewhere)
    (elsewhere / "back").symlink_to(package)
    (elsewhere / ".#lock.py").symlink_to("nobody@nowhere")
    before = of()
    (elsewhere / "attention.py").write_text("x = 1")
    assert of() != before


def test_variables_of_python_and_the_frameworks_count_and_others_do_not(package: Path) -> None:
    assert of(PYTHONPATH="/x") != of() != of(NCCL_ALGO="Ring")
    assert of(HOME="/x", PRIMUS_RUN_DIR="/y") == of()


def test_a_result_is_read_as_it_was_written_and_a_damaged_one_is_none(tmp_path: Path) -> None:
    kept = Kept(str(tmp_path / "verify"), {})
    assert kept.read("tp=2,pp=2") is None
    kept.write("tp=2,pp=2", RESULT)
    assert kept.read("tp=2,pp=2") == RESULT
    assert kept.read("tp=2") is None
    kept.write("dp=2", RESULT)
    kept.forget(["dp=2", "never tried"])
    assert kept.read("dp=2") is None
    (tmp_path / "verify" / "tp=2+pp=2.json").write_text('{"status"')
    assert kept.read("tp=2,pp=2") is None


def test_what_others_could_have_written_is_not_believed(tmp_path: Path) -> None:
    kept = Kept(str(tmp_path / "verify"), {})
    kept.write("tp=2", RESULT)
    (tmp_path / "verify/tp=2.json").chmod(0o666)
    assert kept.read("tp=2") is None
