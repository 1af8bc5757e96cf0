"""What a run came to is recorded, and what to type next is said, whatever happened."""

from __future__ import annotations

import json
import os
import shlex
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


def test_a_run_that_has_ended_keeps_no_space(primus: Run, folder: Path, environ: dict[str, str]) -> None:
    assert primus("direct", "--single", "--", *TRAIN, cwd=folder, env=environ).returncode == 0
    assert list((folder / "output/count").glob(".reserved")) == []


def test_a_run_of_a_pasted_dry_run_is_recorded_as_unwatched(
    primus: Run, folder: Path, environ: dict[str, str], clean_environ: dict[str, str]
) -> None:
    script = primus("direct", "--single", "--dry-run", "--", *TRAIN, cwd=folder, env=environ).stdout
    done = subprocess.run(["bash", "-e"], input=script, text=True, cwd=folder, env={**clean_environ, **environ},
                          capture_output=True, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    [run] = json.loads(primus("runs", "list", "--json", cwd=folder).stdout)
    assert (run["status"], run["last_step"], run["framework"]) == ("unwatched", 2, "countdown")
    shown = primus("runs", "show", run["directory"], cwd=folder).stdout
    assert "started from the script of a dry run" in shown
    assert shlex.join(["primus", "direct", "--single", "--dry-run", "--", *TRAIN]) in shown


@pytest.mark.slow
def test_the_next_line_is_the_typed_command_with_more(primus: Run, folder: Path, environ: dict[str, str]) -> None:
    words = ("direct", "--single", "--", *TRAIN, "steps=3")
    done = primus(*words, cwd=folder, env=environ)
    assert f"  next   {shlex.join(['primus', *words])} exp_name=mine    # the same under another name\n" in done.stderr
    anew = primus(*words, "--new", cwd=folder, env=environ)
    assert anew.stderr.count(f"  next   {shlex.join(['primus', *words])} exp_name=mine    #") == 1, "--new was for once"
    named = primus(*words, "exp_name=mine", cwd=folder, env=environ)
    assert named.returncode == 0
    assert "  next" not in named.stderr


@pytest.mark.parametrize(("code", "word"), [(9, "failed"), (15, "interrupted")])
def test_a_run_with_a_checkpoint_that_did_not_end_well_says_how_to_continue_it(
    primus: Run, folder: Path, environ: dict[str, str], code: int, word: str
) -> None:
    (folder / "hook.py").write_text(
        "import os, signal\nfrom primus_core import hookimpl\nfrom primus_core.journal.events import checkpoint_saved\n\n\n"
        "@hookimpl\ndef after_launch(run):\n    checkpoint_saved(run.directory, step=40, path='x')\n"
        "    checkpoint_saved(run.directory, step=90, path='y')\n"
        "    with open(run.directory + '/metrics.jsonl', 'a') as file:\n"
        '        file.write(\'{"step": 90, "steps": 90, "loss": 1.0}\\n\')\n'
        f"    os.kill(os.getppid(), {code}) if {code} == 15 else None\n",
        encoding="utf-8",
    )
    (folder / "primus.yaml").write_text("plugins: [./hook.py]\n", encoding="utf-8")
    slow = folder / "site/plain_countdown.py"
    text = slow.read_text(encoding="utf-8").replace(
        'return replace(planned, worker=replace(planned.worker, launcher="one-per-node"))',
        'return replace(planned, worker=replace(planned.worker, module="slow", launcher="one-per-node"))',
    )
    slow.write_text(text, encoding="utf-8")
    (folder / "site/slow.py").write_text("import sys, time\ntime.sleep(1.5)\nsys.exit(9)\n", encoding="utf-8")
    done = primus("direct", "--", *TRAIN, "--new", cwd=folder, env=environ)
    assert done.returncode == (9 if code == 9 else 143), done.stderr
    again = shlex.join(["primus", "direct", "--", *TRAIN])
    assert f"{again}    # continues from step 40\n" in done.stderr
    assert known(folder / "output", "count")["status"] == word


def test_a_run_that_finds_no_space_for_its_directory_is_told_to_free_some(
    primus: Run, folder: Path, small_disk: Path
) -> None:
    size = os.statvfs(small_disk)
    (small_disk / "taken").write_bytes(b"x" * (size.f_bavail * size.f_frsize))
    done = primus("direct", "--single", "--", "fill", "0", cwd=folder)
    assert done.returncode == 3
    assert "No space left on device" in done.stderr
    assert "fix: free space there" in done.stderr
