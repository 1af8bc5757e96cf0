"""Which checkpoints `keep_latest_k` deletes: never the last whole one, and nothing that this training has not made."""

from __future__ import annotations

import os
import queue
import shutil
from pathlib import Path
from typing import Any

import pytest

from primus_torchtitan.checkpoints import CheckpointWatch, stale_checkpoints


def write(folder: Path, step: int, *, whole: bool = True) -> Path:
    """A checkpoint of one part, or one that was cut off."""
    path = folder / f"step-{step}"
    path.mkdir(parents=True, exist_ok=True)
    (path / "__0_0.distcp").write_bytes(b"data")
    if whole:
        (path / ".metadata").write_bytes(b"data")
    return path


class Checkpointer:
    """As TorchTitan's: it saves each fifth step, and then deletes what its queue names."""

    keep_latest_k = 2

    def __init__(self, folder: Path) -> None:
        self.folder, self.purge_queue = str(folder), queue.Queue[str]()

    def save(self, step: int, last_step: bool = False) -> None:
        if step % 5 == 0:
            write(Path(self.folder), step)
            self._purge_stale_checkpoints()

    def _should_purge(self) -> bool:
        return True

    def _purge_stale_checkpoints(self) -> None:
        raise AssertionError("by the names of folders")


@pytest.fixture
def told() -> list[int]:
    """The steps that were announced."""
    return []


def train(folder: Path, told: list[int], first: int, last: int) -> None:
    """Run these steps; there is a whole checkpoint at each moment once there was one."""
    checkpointer: Any = Checkpointer(folder)
    CheckpointWatch(checkpointer, lambda step, path: told.append(step))
    for step in range(first, last + 1):
        checkpointer.save(step, last_step=step == last)
        while not checkpointer.purge_queue.empty():
            shutil.rmtree(checkpointer.purge_queue.get())
        assert step < 5 or any((path / ".metadata").exists() for path in folder.glob("step-*") if len(path.name) < 8)


def test_strays_with_higher_numbers_and_folders_of_a_person_change_nothing(tmp_path: Path, told: list[int]) -> None:
    for name in ("step-99998", "step-99999", "best-step-3", "step-3-mine"):
        (tmp_path / name).mkdir()
    (tmp_path / "best-step-3/notes").touch()
    write(tmp_path, 88888)
    train(tmp_path, told, 1, 22)
    left = {"step-99998", "step-99999", "best-step-3", "step-3-mine", "step-88888", "step-15", "step-20"}
    assert {*os.listdir(tmp_path)} == left
    assert told == [5, 10, 15, 20]


def test_a_checkpoint_that_was_cut_off_is_announced_once_it_is_whole_and_never_counts(
    tmp_path: Path, told: list[int]
) -> None:
    write(tmp_path, 5)
    write(tmp_path, 10, whole=False)
    train(tmp_path, told, 6, 11)
    assert told == [10]
    assert {*os.listdir(tmp_path)} == {"step-5", "step-10"}


def test_a_checkpoint_that_was_whole_just_before_a_kill_is_announced_by_the_next_attempt(
    tmp_path: Path, told: list[int]
) -> None:
    write(tmp_path, 5)
    write(tmp_path, 10)
    watch = CheckpointWatch(Checkpointer(tmp_path), lambda step, path: told.append(step), told={5})
    watch.look()
    assert told == [10]


def test_an_unfinished_save_takes_a_place_but_not_the_last_one(tmp_path: Path) -> None:
    for step in (5, 10, 15):
        write(tmp_path, step)
    write(tmp_path, 20, whole=False)
    assert stale_checkpoints(str(tmp_path), 2, 20) == [str(tmp_path / f"step-{step}") for step in (5, 10)]


def test_what_was_cut_off_goes_with_the_old_ones_unless_it_holds_something_else(tmp_path: Path) -> None:
    write(tmp_path, 5, whole=False)
    (write(tmp_path, 6, whole=False) / "notes.txt").touch()
    (tmp_path / "step-7").mkdir()
    assert stale_checkpoints(str(tmp_path), 2, 10) == []
    write(tmp_path, 10)
    assert stale_checkpoints(str(tmp_path), 2, 10) == [str(tmp_path / "step-5")]
