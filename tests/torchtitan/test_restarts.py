"""Training that loses a rank now and then comes to the same losses as training that does not."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest
from tests.torchtitan.test_train_command import losses, train

from primus_torchtitan.checkpoints import is_whole, resume_from

STEPS = 9
SETTINGS = (f"training.steps={STEPS}", "checkpoint.interval=2")


def checkpoint(folder: Path, step: int, *, data: str = "x", metadata: str = "x") -> None:
    """A checkpoint as torch writes it."""
    place = folder / f"step-{step}"
    place.mkdir(parents=True)
    (place / "__0_0.distcp").write_text(data)
    (place / ".metadata").write_text(metadata)


def test_a_checkpoint_that_was_cut_off_is_passed_over(tmp_path: Path) -> None:
    checkpoint(tmp_path, 2)
    checkpoint(tmp_path, 10)
    checkpoint(tmp_path, 12, data="")
    checkpoint(tmp_path, 14, metadata="")
    (tmp_path / "step-16").mkdir()
    whole = io.BytesIO()
    zipfile.ZipFile(whole, "w").writestr("tensor", bytes(1000))
    (tmp_path / "step-10/__0_0.distcp").write_bytes(whole.getvalue() * 2)
    checkpoint(tmp_path, 18)
    (tmp_path / "step-18/__0_0.distcp").write_bytes((whole.getvalue() * 2)[:-100])
    assert resume_from(str(tmp_path)) == (10, (18, 16, 14, 12))
    assert not is_whole(str(tmp_path / "step-16"))
    assert resume_from(str(tmp_path / "gone")) == (None, ())


def worker_below(pid: int) -> int | None:
    """A rank among the processes below `pid`."""
    for child in subprocess.run(["pgrep", "-P", str(pid)], text=True, capture_output=True, check=False).stdout.split():
        command = Path(f"/proc/{child}/cmdline")
        if command.exists() and b"primus_core.rank" in command.read_bytes() and b"run" not in command.read_bytes():
            return int(child)
        if found := worker_below(int(child)):
            return found
    return None


@pytest.mark.torch
@pytest.mark.slow
def test_a_rank_that_dies_twice_changes_no_loss(clean_environ: dict[str, str], tmp_path: Path) -> None:
    primus = str(Path(sys.executable).with_name("primus"))
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    for folder in (whole, broken):
        folder.mkdir()
    subprocess.run([primus, *train(*SETTINGS)], env=clean_environ, cwd=whole, check=True, timeout=300)
    words = train(*SETTINGS)
    command = [primus, words[0], "--max-restarts", "2", *words[1:]]
    process = subprocess.Popen(command, env=clean_environ, cwd=broken, stderr=subprocess.PIPE, text=True)
    for step in (3, 7):
        deadline = time.monotonic() + 120
        while not (broken / "output/quickstart").exists() or max(losses_so_far(broken), default=0) < step:
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        rank = worker_below(process.pid)
        assert rank, "it trains"
        os.kill(rank, signal.SIGKILL)
    _, stderr = process.communicate(timeout=300)
    assert process.returncode == 0, stderr
    assert stderr.count("starting again") == 2
    assert losses((broken / "output/quickstart").resolve()) == losses((whole / "output/quickstart").resolve())


def losses_so_far(folder: Path) -> dict[int, float]:
    """Losses by step of the newest run, once there are any."""
    run = (folder / "output/quickstart").resolve()
    return losses(run) if (run / "metrics.jsonl").exists() else {}
