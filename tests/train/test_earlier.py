"""The earlier runs of an experiment: which of their files a run that starts now may go on from."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from tests.conftest import wait_until
from tests.core.test_rundir import facts, run

from primus_core.journal import record
from primus_core.plan.plan import Distributed, RunPlace
from primus_core.runs.rundir import place
from primus_core.runs.snapshot_form import MANIFEST
from primus_machine.host import HostRoot
from primus_train import continuation
from primus_train.continuation import Earlier


def found(folder: Path, pattern: str = "checkpoints/*") -> list[str]:
    """What a new run of `small` finds, relative to the workspace."""
    here = place(facts(folder), ".", "small")
    return [str(Path(path).relative_to(folder)) for path in earlier(folder, here).files(pattern)]


def earlier(folder: Path, here: RunPlace) -> Earlier:
    return Earlier(here, facts(folder), Distributed())


def test_files_of_unfinished_runs_are_found_newest_first(tmp_path: Path) -> None:
    run(tmp_path, "small_2026_01_02_000000", "failed", "checkpoints/1", "checkpoints/2")
    run(tmp_path, "small_2025_12_31_235959", "interrupted", "checkpoints/9")
    run(tmp_path, "small_2026_01_02_000000_2", "failed", "checkpoints/3")
    run(tmp_path, "small_2026_01_02_000000_10", "", "checkpoints/4")
    assert found(tmp_path) == [
        "small_2026_01_02_000000_10/checkpoints/4",
        "small_2026_01_02_000000_2/checkpoints/3",
        "small_2026_01_02_000000/checkpoints/1",
        "small_2026_01_02_000000/checkpoints/2",
        "small_2025_12_31_235959/checkpoints/9",
    ]


def test_the_search_ends_at_a_run_that_completed(tmp_path: Path) -> None:
    run(tmp_path, "small_2026_01_03_000000", "failed", "checkpoints/3")
    run(tmp_path, "small_2026_01_02_000000", "completed", "checkpoints/2")
    run(tmp_path, "small_2026_01_01_000000", "failed", "checkpoints/1")
    assert found(tmp_path) == ["small_2026_01_03_000000/checkpoints/3"]


def test_runs_of_other_experiments_are_not_looked_into(tmp_path: Path) -> None:
    for name in ("smaller_2026_01_01_000000", "small_b_2026_01_01_000000", "small", "small_2026", "small_x"):
        run(tmp_path, name, "failed", "checkpoints/1")
    assert found(tmp_path) == []


def test_a_workspace_with_the_signs_of_patterns_in_its_name_is_searched_all_the_same(tmp_path: Path) -> None:
    folder = tmp_path / "a[1]*"
    folder.mkdir()
    run(folder, "small_2026_01_01_000000", "failed", "checkpoints/1")
    assert found(folder) == ["small_2026_01_01_000000/checkpoints/1"]


def test_a_first_run_and_one_that_joined_find_nothing(tmp_path: Path) -> None:
    assert found(tmp_path / "nowhere") == []
    assert earlier(tmp_path, RunPlace("r", "/runs/r", "", joined=True)).files("*") == ()


def test_a_run_without_a_whole_snapshot_is_passed_over(tmp_path: Path) -> None:
    (run(tmp_path, "small_2026_01_02_000000", "started", "checkpoints/2") / MANIFEST).unlink()
    run(tmp_path, "small_2026_01_01_000000", "failed", "checkpoints/1")
    assert found(tmp_path) == ["small_2026_01_01_000000/checkpoints/1"]


@pytest.mark.parametrize("status", ["started", "submitted"])
def test_a_run_that_may_go_on_elsewhere_is_not_continued_nor_what_came_before_it(tmp_path: Path, status: str) -> None:
    run(tmp_path, "small_2026_01_02_000000", status, "checkpoints/2")
    run(tmp_path, "small_2026_01_01_000000", "failed", "checkpoints/1")
    assert found(tmp_path) == []


@pytest.mark.parametrize("planted", ["", "metadata.json"], ids=["the run", "a file in it"])
def test_what_others_can_write_to_is_passed_over_and_named(tmp_path: Path, planted: str) -> None:
    run(tmp_path, "small_2026_01_01_000000", "failed", "checkpoints/1")
    (tmp_path / "small_2026_01_01_000000" / planted).chmod(0o777)
    runs = earlier(tmp_path, RunPlace("x", str(tmp_path / "x"), str(tmp_path / "small")))
    assert runs.files("checkpoints/*") == ()
    [note] = runs.notes
    assert note.startswith("does not continue small_2026_01_01_000000: everybody can write to it; to trust it: primus")


def test_a_job_that_begins_again_does_not_look_at_runs_that_were_started_after_it(tmp_path: Path) -> None:
    for day, status in (("01", "failed"), ("02", "submitted"), ("03", "started")):
        run(tmp_path, f"small_2026_01_{day}_000000", status, "checkpoints/1")
    here = RunPlace("x", str(tmp_path / "small_2026_01_02_000000"), str(tmp_path / "small"), joined=True, outer="slurm")
    assert earlier(tmp_path, here).files("checkpoints/*") == (f"{tmp_path}/small_2026_01_01_000000/checkpoints/1",)


def test_a_lost_run_is_continued_once_its_ranks_have_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    directory, known = run(tmp_path, "small_2026_01_01_000000", "started", "checkpoints/1"), facts(tmp_path)
    known = known._replace(host=HostRoot())
    (directory / record.FILE).write_text(json.dumps({"status": "started", "host": known.host.hostname(), "pid": 2**22}))
    rank = subprocess.Popen(["sleep", "600"], env={"RANK": "0", "PRIMUS_RUN_DIR": str(directory)})
    wait_until(lambda: b"PRIMUS_RUN_DIR" in Path(f"/proc/{rank.pid}/environ").read_bytes())  # a moment after it began
    here = Earlier(place(known, ".", "small"), known, Distributed())
    monkeypatch.setattr(continuation, "_RANKS_S", 0.3)
    try:
        assert here.files("checkpoints/*") == ()
    finally:
        rank.kill()
        rank.wait()
    refused = here.nothing_to_continue("torchtitan")
    assert f"its ranks are still running: {rank.pid}" in refused.why
    assert f"kill {rank.pid}" in refused.fix
    assert capsys.readouterr().err.endswith(f"of small_2026_01_01_000000 to end: processes {rank.pid}\n")
    again = Earlier(here.place, known, Distributed())
    assert again.files("checkpoints/*") == (str(directory / "checkpoints/1"),)
