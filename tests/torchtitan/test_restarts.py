"""Training that loses a rank now and then comes to the same losses as training that does not."""

from __future__ import annotations

import io
import os
import shutil
import signal
import subprocess
import zipfile
from pathlib import Path

import pytest
from tests.torchtitan.conftest import Program
from tests.torchtitan.quickstart import PRIMUS, WHOLE, Gates, Whole, losses, train

from primus_torchtitan.checkpoints import is_whole, resume_from


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


@pytest.mark.torch
def test_a_training_without_checkpoints_has_none_to_load(program: Program) -> None:
    """TorchTitan's checkpointer lacks nearly all its attributes then."""
    code = """
from pathlib import Path
from types import SimpleNamespace
from torchtitan.components.checkpointer.dcp import CheckpointManager
from primus_torchtitan.checkpoints import CheckpointWatch
from primus_torchtitan.optimizer_settings import keep_settings
from primus_train.failed_loads import FailedLoads
names = ("dataloader", "model_parts", "optimizers", "lr_schedulers", "states", "sd_adapter")
checkpointer = CheckpointManager(CheckpointManager.Config(enable=False), **dict.fromkeys(names))
keep_settings(SimpleNamespace(checkpointer=checkpointer, lr_schedulers=[]), FailedLoads.of_run(Path("/nowhere")))
CheckpointWatch(checkpointer, print)
print(checkpointer.load(step=-1), checkpointer.save(1))
"""
    assert program(code).out.split() == ["False", "False"]


@pytest.mark.torch
@pytest.mark.full
def test_a_rank_that_dies_twice_changes_no_loss(clean_environ: dict[str, str], tmp_path: Path, whole: Whole) -> None:
    assert whole.result.returncode == 0, whole.result.stderr
    gates = Gates(tmp_path / "gates")
    words = train(*WHOLE)
    command = [PRIMUS, words[0], "--max-restarts", "2", *words[1:]]
    environ = {**clean_environ, **gates.environ(14, 28)}
    process = subprocess.Popen(
        command, env=environ, cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    )
    for step in (14, 28):
        os.kill(gates.wait(process, step), signal.SIGKILL)
    _, stderr = process.communicate(timeout=300)
    assert process.returncode == 0, stderr
    assert stderr.count("starting again") == 2
    assert losses((tmp_path / "output/quickstart").resolve()) == losses(whole.run)


@pytest.mark.torch
@pytest.mark.full
def test_an_attempt_after_the_last_checkpoint_trains_nothing_and_completes_the_run(
    clean_environ: dict[str, str], tmp_path: Path, whole: Whole
) -> None:
    shutil.copytree(whole.run, tmp_path / "run", symlinks=True)
    environ = {**clean_environ, "PRIMUS_RUN_DIR": str(tmp_path / "run")}
    again = subprocess.run([PRIMUS, *train(*WHOLE)], env=environ, cwd=tmp_path, text=True, capture_output=True,
                           timeout=300, check=False)  # fmt: skip
    assert again.returncode == 0, again.stderr
    assert "steps were made before, and the checkpoint of step" in again.stderr + again.stdout
    assert losses(tmp_path / "run") == losses(whole.run)
