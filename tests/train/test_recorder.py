"""The one recorder of all backends: its lines, and what it does about a loss that is not finite."""

from __future__ import annotations

import json
import math
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import ROOT
from tests.train.test_step_clock import Time

from primus_core.errors import TrainingError
from primus_core.journal.events import checkpoint_saved
from primus_core.journal.metrics import Metrics
from primus_core.plan.plan import EXPERIMENT
from primus_train.failed_loads import FailedLoads
from primus_train.kit.recorder import Recorder, Step
from primus_train.kit.step_clock import StepClock
from primus_train.kit.work import ComputeCost

NAN, INF = math.nan, math.inf


class Training:
    """A toy training of 20 steps of two seconds and 128 tokens, on four devices."""

    def __init__(self, folder: Path, **options: Any) -> None:
        (folder / "logs").mkdir()
        self.folder, self.time, self.said, self.step = folder, Time(), list[str](), 0
        self.recorder = Recorder(
            **{
                "reports": True, "work": ComputeCost(flops_per_token=10**9, peak_tflops=1), "run_dir": str(folder),
                "file": str(folder / "metrics.jsonl"), "say": self.said.append, "clock": StepClock(self.time), **options,
            }
        )  # fmt: skip

    def lose(self, *losses: float, **known: Any) -> None:
        """A step for each."""
        for loss in losses:
            self.step += 1
            self.recorder.clock.step(128)
            self.time.passes(2)
            step = Step(step=self.step, steps=20, loss=loss, tokens=128 * self.step, devices=4, **known)
            self.recorder.log(self.recorder.clock.lap(), step)

    def rows(self) -> list[dict[str, Any]]:
        return self._read("metrics.jsonl")

    def events(self, name: str) -> list[dict[str, Any]]:
        return [event for event in self._read("logs/events.jsonl") if event["event"] == name]

    def _read(self, name: str) -> list[dict[str, Any]]:
        def refuse(word: str) -> None:
            raise AssertionError(f"{name} holds {word}, which is no JSON")

        path = self.folder / name
        lines = path.read_text().splitlines() if path.exists() else []
        return [json.loads(line, parse_constant=refuse) for line in lines]

    def warnings(self) -> list[str]:
        return [event["message"] for event in self.events("loss_not_finite") if "message" in event]


@pytest.fixture(autouse=True)
def _in_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRIMUS_RUN_DIR", str(tmp_path))


def test_all_figures_of_a_line_follow_from_one_time(tmp_path: Path) -> None:
    training = Training(tmp_path)
    training.lose(4.0, lr=1e-3)
    with training.recorder.clock.saving():
        training.time.passes(30)
    training.lose(3.0)
    first, second = training.rows()
    assert first | {"time": 0} == {
        "step": 1, "steps": 20, "loss": 4.0, "lr": 1e-3, "grad_norm": None, "global_batch_size": None, "tokens": 128,
        "tokens_per_second": 64.0, "tokens_per_second_per_gpu": 16.0, "tflops_per_gpu": 0.016, "mfu": 0.016,
        "step_time_s": 2.0, "save_s": 0.0, "evaluation_s": 0.0, "memory_gib": None, "time": 0,
    }  # fmt: skip
    assert (second["step_time_s"], second["save_s"], second["tokens_per_second"]) == (2.0, 30.0, 64.0)
    assert training.said[1].startswith("iteration 2/20 | elapsed time per iteration (ms): 2000.0 | loss: 3.00000")


def test_each_figure_is_explained_and_what_a_framework_knows_of_a_step_reaches_its_line(tmp_path: Path) -> None:
    known = {field.name for field in fields(Metrics)}
    before, _, after = (ROOT / "docs/metrics.md").read_text(encoding="utf-8").partition("| field |")
    table = after.partition("\n\n")[0].splitlines()
    assert {name for row in table for name in re.findall(r"`(\w+)`", row.split("|")[1])} == known
    assert {*json.loads(before[before.index("{") :])} == known, "the example"
    both = known & {field.name for field in fields(Step)} - {"step", "steps", "loss", "tokens"}
    training = Training(tmp_path)
    training.lose(4.0, **dict.fromkeys(both, 7))
    [line] = training.rows()
    assert {name: line[name] for name in both} == dict.fromkeys(both, 7)
    assert None not in line.values(), "all is known, so nothing is left out"


def test_what_the_framework_counts_is_taken_where_the_plan_has_no_count(tmp_path: Path) -> None:
    training = Training(tmp_path, work=ComputeCost(peak_tflops=1))
    training.lose(4.0, flops_per_token=2e9)
    assert training.rows()[0]["tflops_per_gpu"] == 0.032


def test_what_follows_the_last_line_is_an_event_at_the_end(tmp_path: Path) -> None:
    training = Training(tmp_path)
    training.lose(4.0)
    with training.recorder.clock.saving():
        training.time.passes(5)
    with training.recorder.clock.evaluating():
        training.time.passes(3)
    training.recorder.validation(step=1, steps=20, loss=4.5)
    training.recorder.close(asked=100)
    [event] = training.events("training_ended")
    assert (event["step"], event["save_s"], event["evaluation_s"]) == (1, 5.0, 3.0)
    assert training.rows()[1] | {"time": 0} == {"step": 1, "steps": 20, "validation_loss": 4.5, "time": 0}


def test_the_last_step_is_told_at_the_end_also_where_it_has_no_line(tmp_path: Path) -> None:
    training = Training(tmp_path)
    training.lose(4.0)
    for _ in range(2):
        training.recorder.clock.step(8)
    training.recorder.close(asked=100)
    assert training.events("training_ended")[0]["step"] == 3
    (tmp_path / "silent").mkdir()
    silent = Training(tmp_path / "silent")
    silent.recorder.clock.step(8)
    silent.recorder.close(asked=20)
    assert silent.events("training_ended")[0]["step"] == 20, "no line at all"


def test_a_training_without_steps_has_no_end_to_tell(tmp_path: Path) -> None:
    training = Training(tmp_path)
    training.recorder.close(asked=0)
    assert training.events("training_ended") == []


def test_a_training_that_was_asked_for_steps_and_made_none_has_failed(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="no step was made, but training should end at step 100"):
        Training(tmp_path).recorder.close(asked=100)


def test_the_third_loss_in_a_row_that_is_not_finite_ends_the_run_and_names_the_steps(tmp_path: Path) -> None:
    training = Training(tmp_path)
    with pytest.raises(TrainingError) as error:
        training.lose(4.0, 3.0, 2.0, 1.0, NAN, NAN, NAN, 2.0)
    assert error.value.exit_code == 1
    assert error.value.what == "the loss is nan at steps 5, 6, 7"
    assert "lower the learning rate" in error.value.fix
    assert "on_non_finite=warn continues" in error.value.fix
    assert [row["loss"] for row in training.rows()] == [4.0, 3.0, 2.0, 1.0, None, None, None]
    assert [(event["step"], event["loss"]) for event in training.events("loss_not_finite")] == [
        (5, "nan"), (6, "nan"), (7, "nan"),
    ]  # fmt: skip
    assert training.warnings()[0] == "the loss of step 5 is nan"
    assert len(training.warnings()) == 3


def test_two_in_a_row_end_nothing(tmp_path: Path) -> None:
    training = Training(tmp_path)
    training.lose(NAN, NAN, 2.0, INF, -INF, 2.0, NAN)
    assert [row["step"] for row in training.rows()] == [1, 2, 3, 4, 5, 6, 7]
    assert len(training.events("loss_not_finite")) == 5


def test_a_training_whose_last_loss_is_not_finite_has_not_ended_well(tmp_path: Path) -> None:
    training = Training(tmp_path)
    training.lose(2.0, NAN)
    with pytest.raises(TrainingError, match="the loss is nan at step 2"):
        training.recorder.close(asked=2)
    training.recorder.on_non_finite = "warn"
    training.recorder.close(asked=2)


def test_checkpoints_from_which_it_would_diverge_again_are_passed_over(tmp_path: Path) -> None:
    training = Training(tmp_path)
    (tmp_path / "config").mkdir()
    (tmp_path / EXPERIMENT).write_text("exp")
    made = [tmp_path / f"checkpoints/step-{step}" for step in (1, 3, 4)]
    for path in made:
        path.mkdir(parents=True)
        checkpoint_saved(str(tmp_path), step=int(path.name[-1]), path=str(path))
    with pytest.raises(TrainingError):
        training.lose(3.0, 2.0, 1.0, NAN, NAN, NAN)
    failed = FailedLoads.of_run(tmp_path)
    assert failed.left(list(map(str, made))) == [str(made[0])], "the weights of step 3 gave the loss of step 4"
    assert failed.fault(str(made[2])) == "leads to a loss that is not finite"


def test_infinities_count_too_and_are_named(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="the loss is inf or nan at steps 1, 2, 3"):
        Training(tmp_path).lose(INF, NAN, NAN)


def test_warn_trains_on_and_is_silent_after_three_warnings_until_a_loss_is_finite(tmp_path: Path) -> None:
    training = Training(tmp_path, on_non_finite="warn")
    training.lose(*[NAN] * 5, 1.0, NAN)
    assert len(training.rows()) == 7
    assert [line.split(" is ")[0].rpartition(" ")[2] for line in training.warnings()] == ["1", "2", "3", "7"]
    assert training.warnings()[2].endswith("no further warnings until it is finite again")
    assert len(training.events("loss_not_finite")) == 6


def test_ignore_says_nothing_and_the_lines_have_no_loss(tmp_path: Path) -> None:
    training = Training(tmp_path, on_non_finite="ignore")
    training.lose(*[NAN] * 5)
    assert [row["loss"] for row in training.rows()] == [None] * 5
    assert (training.warnings(), training.events("loss_not_finite")) == ([], [])


@pytest.mark.parametrize("choice", ["stop", "warn", "ignore"])
def test_a_setting_of_the_framework_that_ends_a_run_at_once_does(tmp_path: Path, choice: str) -> None:
    with pytest.raises(TrainingError) as error:
        Training(tmp_path, on_non_finite=choice).lose(NAN, ended_by="abort_on_nan_loss")
    assert error.value.what == "the loss is nan at step 1"
    assert "abort_on_nan_loss=false continues" in error.value.fix


def test_a_rank_that_does_not_report_ends_too_and_writes_nothing(tmp_path: Path) -> None:
    training = Training(tmp_path, reports=False, say=None)
    with pytest.raises(TrainingError, match="steps 1, 2, 3"):
        training.lose(NAN, NAN, NAN)
    assert (training.rows(), training.events("loss_not_finite")) == ([], [])


def test_a_gradient_that_is_not_finite_is_a_null(tmp_path: Path) -> None:
    training = Training(tmp_path)
    training.lose(2.0, grad_norm=INF)
    assert training.rows()[0]["grad_norm"] is None


def test_where_a_framework_ends_the_run_the_rank_that_found_it_tells(tmp_path: Path) -> None:
    training = Training(tmp_path, reports=False)
    error = training.recorder.ended_by("check_for_nan", 5, "found NaN in local grad norm")
    assert (error.what, error.why) == ("the loss or a gradient is not finite at step 5", "found NaN in local grad norm")
    assert error.fix.endswith("check_for_nan=false continues despite such a loss, with --new")
    assert training.events("loss_not_finite")[0]["step"] == 5
