"""What a run came to is recorded, and what to type next is said, whatever happened."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Run
from tests.lab import countdown

TRAIN = ("train", "pretrain", "--config", "exp.yaml")
FILL = """
import os, sys
from primus_core import register_task
from primus_core.journal.events import checkpoint_saved

@register_task("fill")
def fill(call):
    "Fill the disk, and end with the exit code of the first word."
    with open(call.run_dir + "/big", "wb", buffering=0) as file:
        for size in (1 << 16, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                pass
    return int(call.words[0])
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project with an experiment and a task."""
    (tmp_path / "exp.yaml").write_text(countdown.EXPERIMENT, encoding="utf-8")
    (tmp_path / "primus.yaml").write_text("plugins: [./fill.py]\n", encoding="utf-8")
    (tmp_path / "fill.py").write_text(FILL, encoding="utf-8")
    return tmp_path


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """What finds the small backend."""
    return {"PYTHONPATH": countdown.install(tmp_path / "site")}


@pytest.fixture
def small_disk(folder: Path) -> Iterator[Path]:
    """The workspace, on a disk of 1 MB."""
    if os.getuid():
        pytest.skip("only root can mount a small disk")
    output = folder / "output"
    output.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(output)], check=True)
    yield output
    subprocess.run(["umount", str(output)], check=True)


def known(output: Path, name: str) -> dict[str, Any]:
    return dict(json.loads((output / name / "metadata.json").read_text(encoding="utf-8")))


def test_a_run_that_succeeds_on_a_full_disk_is_recorded_as_completed(
    primus: Run, folder: Path, small_disk: Path
) -> None:
    done = primus("direct", "--single", "--", "fill", "0", cwd=folder)
    assert done.returncode == 0, done.stderr
    found = known(small_disk, "fill")
    assert (found["status"], found["exit_code"]) == ("completed", 0)
    assert "could not be written" not in done.stderr


def test_a_run_that_fails_on_a_full_disk_names_it(primus: Run, folder: Path, small_disk: Path) -> None:
    done = primus("direct", "--single", "--", "fill", "7", cwd=folder)
    assert done.returncode == 7
    assert "No space left on device (ENOSPC) in " in done.stderr
    found = known(small_disk, "fill")
    assert (found["status"], found["exit_code"]) == ("failed", 7)
    assert "ENOSPC" in found["first_failure"]["what"]


def test_a_run_that_finds_no_space_for_its_directory_is_told_to_free_some(
    primus: Run, folder: Path, small_disk: Path
) -> None:
    size = os.statvfs(small_disk)
    (small_disk / "taken").write_bytes(b"x" * (size.f_bavail * size.f_frsize))
    done = primus("direct", "--single", "--", "fill", "0", cwd=folder)
    assert done.returncode == 3
    assert "No space left on device" in done.stderr
    assert "fix: free space there" in done.stderr
