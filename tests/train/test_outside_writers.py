"""What TensorBoard and Weights & Biases are told of a run that begins again."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from primus_core.plan.plan import RunPlace
from primus_train.kit.outside_writers import OutsideWriters, wandb_variables


class SummaryWriter:
    """As TensorBoard's, which drops what it shows from `purge_step` on."""

    def __init__(self, folder: str, purge_step: int | None = None) -> None:
        self.folder, self.purge_step, self.flushed = folder, purge_step, False

    def flush(self) -> None:
        self.flushed = True


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module with a writer."""
    found = ModuleType("board")
    vars(found)["SummaryWriter"] = type("SummaryWriter", (SummaryWriter,), {})
    monkeypatch.setitem(sys.modules, "board", found)
    return found


def test_all_attempts_of_a_run_report_to_one_run_of_wandb_and_to_the_group_of_their_experiment() -> None:
    place = RunPlace("small_2026_11_22_101526", "/runs/small_2026_11_22_101526", "/runs/small")
    first, again = (wandb_variables(place) for _ in range(2))
    assert first == again
    found = {variable.name: variable.value for variable in wandb_variables(place, "/runs/small_2026_11_21_101526")}
    assert found == {
        "WANDB_RUN_ID": "small_2026_11_22_101526",
        "WANDB_RESUME": "allow",
        "WANDB_RUN_GROUP": "small",
        "WANDB_NOTES": "starts from a checkpoint of small_2026_11_21_101526",
    }


def test_a_resumed_run_drops_the_steps_after_its_checkpoint_from_tensorboard(module: Any) -> None:
    OutsideWriters("board", resumed=5)
    assert module.SummaryWriter("folder").purge_step == 6
    assert module.SummaryWriter("folder", purge_step=3).purge_step == 3


def test_a_run_from_the_first_step_drops_nothing(module: Any) -> None:
    OutsideWriters("board")
    assert module.SummaryWriter("folder").purge_step is None


def test_a_further_attempt_from_the_first_step_drops_all_of_the_one_before(
    module: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It was killed before its first checkpoint."""
    monkeypatch.setenv("PRIMUS_METRICS_FILE", str(tmp_path / "metrics.jsonl"))
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\n')
    OutsideWriters("board")
    assert module.SummaryWriter("folder").purge_step == 0


def test_what_writers_hold_is_written_out_and_wandb_ended(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[str] = []
    wandb = SimpleNamespace(run="a run", finish=lambda: ended.append("wandb"))
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    writers = OutsideWriters("board")
    writer = module.SummaryWriter("folder")
    writers.flush()
    assert writer.flushed
    assert ended == ["wandb"]
