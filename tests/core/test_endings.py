"""What a run came to is recorded, and what to type next is said, whatever happened."""

from __future__ import annotations

import json
import os
import subprocess
import sys
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
    with open(call.run_dir + "/big", "ab", buffering=0) as file:  # "wb" of a late rank would empty the disk again
        for size in (1 << 16, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                pass
    if call.words[1:]:
        raise ValueError(call.words[1])
    return int(call.words[0])

@register_task("each", scope="rank")
def each(call):
    "The same on each rank."
    return fill(call)
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


@pytest.mark.torch
@pytest.mark.parametrize(("words", "code", "cause"), [(("7",), 7, "exit code 7"), (("7", "oh dear"), 1, "oh dear")])
@pytest.mark.full
def test_a_full_disk_hides_neither_exit_code_nor_cause_of_a_rank_below_torchrun(
    primus: Run, folder: Path, small_disk: Path, words: tuple[str, ...], code: int, cause: str
) -> None:
    done = primus("direct", "--", "each", *words, cwd=folder, env={"GPUS_PER_NODE": "2"})
    assert done.returncode == code, done.stderr
    assert "cannot record the failure of rank 0: No space left on device" in done.stderr
    found = known(small_disk, "each")
    assert (found["status"], found["exit_code"]) == ("failed", code)
    assert "ENOSPC" in found["first_failure"]["what"]
    assert cause in found["first_failure"]["what"]


NO_SPACE = """
import sys, tempfile
tempfile.tempdir = sys.argv.pop(1)
from primus_core.cli import main
sys.exit(main.main())
"""


@pytest.mark.parametrize(("temporary", "code", "why"), [("output", 7, ""), ("nowhere", 3, "No such file or directory")])
def test_a_full_disk_for_temporary_files_stops_no_rank_and_one_that_takes_no_folder_is_named(
    folder: Path, small_disk: Path, clean_environ: dict[str, str], temporary: str, code: int, why: str
) -> None:
    """Python falls back to /tmp where TMPDIR is full, so it is told not to."""
    size = os.statvfs(small_disk)
    (small_disk / "taken").write_bytes(b"x" * (size.f_bavail * size.f_frsize))
    task = "from primus_core import register_task\n@register_task('seven')\ndef seven(_): return 7\n"
    project = folder / "project"
    project.mkdir()
    (project / "fill.py").write_text(task, encoding="utf-8")
    (project / "primus.yaml").write_text("plugins: [./fill.py]\n", encoding="utf-8")
    command = [sys.executable, "-c", NO_SPACE, str(folder / temporary), "direct", "--single", "--", "seven"]
    done = subprocess.run(command, cwd=project, env=clean_environ, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    assert f"why: no pipes for its output can be made: {why}" in done.stderr or not why, done.stderr


def test_a_full_disk_behind_stdout_replaces_no_exit_code(folder: Path, clean_environ: dict[str, str]) -> None:
    script = (
        "import sys; from primus_core.cli import main; main._main = lambda _: print('x') or 7; sys.exit(main.main([]))"
    )
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run(
            [sys.executable, "-c", script],
            env={**clean_environ, "PYTHONUNBUFFERED": ""},
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (done.returncode, "the output cannot be written" in done.stderr) == (7, True), done.stderr


def test_a_run_that_finds_no_space_for_its_directory_is_told_to_free_some(
    primus: Run, folder: Path, small_disk: Path
) -> None:
    size = os.statvfs(small_disk)
    (small_disk / "taken").write_bytes(b"x" * (size.f_bavail * size.f_frsize))
    done = primus("direct", "--single", "--", "fill", "0", cwd=folder)
    assert done.returncode == 3
    assert "No space left on device" in done.stderr
    assert "fix: free space there" in done.stderr
