"""Ranks that are slow are named with their step; those of healthy runs are not."""

from __future__ import annotations

import json
import os
import random
import shutil
import statistics
import time
from pathlib import Path

import pytest
from tests.conftest import ROOT, Run

from primus_train.kit import waits
from primus_watch.ranks import files
from primus_watch.ranks.files import RankSteps, Reader, of_one_start
from primus_watch.ranks.rules import Ranks, _others
from primus_watch.steps.rules import Report


def rank_steps(
    rank: int, *, seed: int = 0, factor: float = 1.0, group: str = "", steps: range = range(1, 120), start: float = 1.0
) -> RankSteps:
    """A rank whose work has noise of 5 %."""
    chance = random.Random(f"{seed} {rank}")
    own = {step: factor * 0.4 * abs(chance.gauss(1, 0.05)) for step in steps}
    return RankSteps(rank, f"node{rank}", group, start, start + 50, own)


def reported(*ranks: RankSteps) -> list[tuple[str, int, int, bool]]:
    return [told(one) for one in Ranks().reports(ranks)]


def told(report: Report) -> tuple[str, int, int, bool]:
    return report.event, int(report.figures["slow_rank"]), report.step, report.warns


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("count", [2, 8])
def test_ranks_of_a_healthy_run_are_not_reported(seed: int, count: int) -> None:
    assert reported(*(rank_steps(rank, seed=seed) for rank in range(count))) == []


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("count", [2, 3, 8])
def test_a_rank_that_works_a_fifth_longer_is_named_once(seed: int, count: int) -> None:
    ranks = [rank_steps(rank, seed=seed, factor=1.2 if rank == 1 else 1.0) for rank in range(count)]
    watch = Ranks()
    assert [told(one) for one in watch.reports(ranks)] == [("slow_rank", 1, 60, True)]
    assert list(watch.reports(ranks)) == []


def test_a_rank_that_pauses_is_a_warning_the_third_time() -> None:
    paused = rank_steps(2)
    paused = RankSteps(2, "node2", "", 1.0, 50.0, {**paused.own, **dict.fromkeys((30, 60, 90), 3.0)})
    found = reported(rank_steps(0), rank_steps(1), paused)
    assert found == [("rank_pause", 2, step, step == 90) for step in (30, 60, 90)]


def test_a_step_that_is_slow_for_all_names_no_rank() -> None:
    ranks = [rank_steps(rank) for rank in range(3)]
    slow = [RankSteps(one.rank, one.host, "", 1.0, 50.0, {**one.own, 60: 9.0}) for one in ranks]
    assert reported(*slow) == []


def test_ranks_with_other_work_are_not_compared() -> None:
    stages = [rank_steps(rank, group=f"stage {rank % 2}", factor=1.0 + rank % 2) for rank in range(4)]
    assert reported(*stages) == []


def test_after_a_restart_the_files_of_the_start_before_are_not_compared() -> None:
    old = rank_steps(1, factor=2.0)
    new = rank_steps(0, start=100.0)
    assert of_one_start([old, new]) == [new]
    watch = Ranks()
    assert [one.event for one in watch.reports([rank_steps(0), old])].count("slow_rank") == 1
    again = [rank_steps(rank, start=100.0, factor=1 + rank, steps=range(50, 110)) for rank in (0, 1)]
    found = [one for one in watch.reports(again) if one.event == "slow_rank"]
    assert [told(one) for one in found] == [("slow_rank", 1, 60, True)]


@pytest.mark.parametrize("count", range(2, 8))
def test_the_median_of_the_others_is_that_of_the_others(count: int) -> None:
    chance = random.Random(count)
    values = sorted(chance.random() for _ in range(count))
    for value in values:
        assert _others(values, value) == pytest.approx(statistics.median(one for one in values if one != value))


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"rank": "x"}', "[" * 9999, '{"rank": 1, "steps": [[1, "\\u0000"]]}']
)
def test_a_file_that_says_nothing_is_skipped(text: str, tmp_path: Path) -> None:
    (tmp_path / files.FOLDER).mkdir()
    (tmp_path / files.FOLDER / "rank_0.json").write_text(text, encoding="utf-8")
    assert Reader(str(tmp_path), os.environ).changed() == []


def test_a_rank_leaves_its_own_time_without_its_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert waits.FOLDER == files.FOLDER
    clock = [0.0]
    monkeypatch.setattr(time, "time", lambda: 1000.0 + clock[0])
    rank = waits.Waits(str(tmp_path), 3, 8, lambda: clock[0])

    def work(own: float, waited: float) -> None:
        clock[0] += own
        rank.around(lambda: clock.__setitem__(0, clock[0] + waited))()

    for step in range(1, 9):
        paused = 2.0 if step > 4 else 0.0  # step 4 has a save
        rank.step(step - 1 if step > 1 else None, paused)
        work(1.5, 0.5)
    [found] = Reader(str(tmp_path), os.environ).changed()
    assert (found.rank, found.own) == (3, dict.fromkeys([1, 2, 3, 5, 6], 1.5))


@pytest.mark.torch
@pytest.mark.full
def test_the_console_and_the_events_of_a_run_name_the_rank(primus: Run, tmp_path: Path) -> None:
    shutil.copy(ROOT / "tests/watch/slow_tasks.py", tmp_path / "tasks.py")
    (tmp_path / "primus.yaml").write_text("plugins: [./tasks.py]\n", encoding="utf-8")
    environ = {"GPUS_PER_NODE": "3", "OMP_NUM_THREADS": "1"}
    done = primus("direct", "--", "meet", "odd", cwd=tmp_path, env=environ)
    console = done.stdout + done.stderr
    assert done.returncode == 0, console
    warned = [line for line in console.splitlines() if "primus: warning: rank " in line]
    assert [line.split(" on ")[0] for line in warned if " is slow: " in line] == ["primus: warning: rank 1"]
    assert [line.split(" on ")[0] for line in warned if " worked " in line] == ["primus: warning: rank 2"]
    [file] = tmp_path.glob("output/meet_2*/logs/events.jsonl")
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    paused = {row["step"] for row in rows if row["event"] == "rank_pause" and row["slow_rank"] == 2}
    assert {50, 100, 150} <= paused, "a busy machine may pause ranks of its own"
    quiet = primus("direct", "--", "meet", cwd=tmp_path, env=environ)
    assert "warning" not in quiet.stdout + quiet.stderr
