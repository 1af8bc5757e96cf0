"""An attempt that follows one which failed after its last checkpoint: nothing is left to train."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from primus_core.errors import RequestError, TrainingError
from primus_core.journal import summary
from primus_core.journal.events import checkpoint_saved
from primus_train.kit.made_before import made_before


@pytest.fixture(autouse=True)
def _in_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "logs").mkdir()
    monkeypatch.setenv("PRIMUS_RUN_DIR", str(tmp_path))
    monkeypatch.setenv("PRIMUS_METRICS_FILE", str(tmp_path / "metrics.jsonl"))


def made(run: Path, steps: int, loss: float | None = 4.0) -> None:
    """An attempt that has made these steps, and whose checkpoint is complete."""
    rows = ({"step": step, "steps": steps, "loss": loss} for step in range(1, steps + 1))
    (run / "metrics.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def test_a_run_whose_earlier_attempt_has_made_all_steps_has_ended_well(tmp_path: Path) -> None:
    made(tmp_path, 6)
    assert made_before(6, 6, f"{tmp_path}/checkpoints")
    assert summary.ended_at(str(tmp_path)) == 6


def test_a_checkpoint_of_another_run_that_leaves_no_step_to_make_is_refused_before_training_saves_over_it(
    tmp_path: Path,
) -> None:
    made(tmp_path, 6)
    with pytest.raises(TrainingError, match="no step is left to make: training should end at step 6") as refused:
        made_before(6, 6, "/shared/checkpoints")
    assert refused.value.fix == "ask for more steps, or save in another folder"
    assert not made_before(5, 6, "/shared/checkpoints")
    checkpoint_saved(str(tmp_path), step=6, path="/shared/checkpoints/step-6")
    assert made_before(6, 6, "/shared/checkpoints"), "this run has saved it"


def test_there_is_more_to_train_after_an_earlier_step_or_a_loss_that_is_lost(tmp_path: Path) -> None:
    made(tmp_path, 6)
    folder = f"{tmp_path}/checkpoints"
    assert not made_before(6, 9, folder)
    assert not made_before(None, 6, folder)
    assert not made_before(6, 0, folder)
    made(tmp_path, 6, loss=None)
    assert not made_before(6, 6, folder)
    assert summary.ended_at(str(tmp_path)) is None


def test_more_steps_than_are_asked_for_are_no_end_of_this_training(tmp_path: Path) -> None:
    made(tmp_path, 6)
    with pytest.raises(RequestError, match="has a checkpoint of step 6 already, and training should end at step 4"):
        made_before(6, 4, f"{tmp_path}/checkpoints")
