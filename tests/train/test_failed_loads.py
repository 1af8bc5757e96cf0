"""Checkpoints that could not be loaded: which count as such, and for whom."""

from __future__ import annotations

import os
import pickle
import time
from pathlib import Path

import pytest
from tests.core.test_rundir import facts, run
from tests.train.test_earlier import earlier

from primus_core.errors import RequestError, TrainingError
from primus_core.runs.rundir import place
from primus_train.continuation import Earlier
from primus_train.failed_loads import MARK, FailedLoads
from primus_train.which_run import AskedRun

EXP = FailedLoads(lambda: "exp")


class CheckpointException(BaseException):  # as torch.distributed.checkpoint names it
    """Has what each rank raised, by rank, with its traceback."""

    def __init__(self, failures: dict[int, tuple[BaseException, object]]) -> None:
        super().__init__(f"CheckpointException ranks:{failures.keys()}")
        self.failures = failures


class OutOfMemoryError(RuntimeError):
    """As torch names it."""


def fail(checkpoint: Path, error: BaseException, failed: FailedLoads = EXP) -> str:
    """Why the checkpoint could not be loaded, as a later attempt sees it."""
    checkpoint.mkdir(parents=True, exist_ok=True)
    with pytest.raises(BaseException) as raised, failed.watched(str(checkpoint)):  # noqa: PT011  # each of its own
        raise error
    why = failed.why(str(checkpoint))
    assert isinstance(raised.value, TrainingError) if why else raised.value is error
    return why


def test_what_a_rank_could_not_read_is_the_reason(tmp_path: Path) -> None:
    of_rank = CheckpointException({1: (pickle.UnpicklingError("invalid load key\nmore"), None)})
    assert fail(tmp_path / "a", of_rank) == "UnpicklingError: invalid load key"
    assert fail(tmp_path / "b", OSError(5, "Input/output error")).startswith("OSError")


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        OSError(116, "Stale file handle"),
        CheckpointException({0: (OutOfMemoryError("CUDA out of memory"), None)}),
        RuntimeError("RESOURCE_EXHAUSTED: Out of memory"),
        RuntimeError("[../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [::1]:29500"),
        RequestError("step-4 holds step 2"),
        KeyboardInterrupt(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_the_machine_or_the_request_lacked_says_nothing_of_the_checkpoint(
    tmp_path: Path, error: BaseException
) -> None:
    assert fail(tmp_path / "a", error) == ""


@pytest.mark.parametrize(
    "said",
    [
        "Size mismatch between saved torch.Size([32, 64]) and current: torch.Size([64, 128]) for layers.0.wk.weight",
        "Global shape mismatch for loaded (torch.Size([2, 64])) and expected ((2, 128)) tensor for key decoder.norm",
        "Checkpoint does not match the model:\n  params.decoder: shape (64,), here (128,)",
        "Missing key in checkpoint state_dict: layers.7.wk.weight.",
        "Requested shape: (128,) is not compatible with the stored shape: (64,).",
    ],
)
def test_a_checkpoint_of_another_model_is_refused_and_not_taken_for_damaged(
    tmp_path: Path, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a").mkdir()
    error = CheckpointException({0: (ValueError(said), None)})
    with pytest.raises(RequestError) as raised, EXP.watched(str(tmp_path / "a")):
        raise error
    assert f"does not fit this training: {tmp_path / 'a'}" in str(raised.value)
    assert f"ValueError: {' '.join(line.strip() for line in said.splitlines())}" in str(raised.value)
    assert "CheckpointException" in capsys.readouterr().err, "where it failed is in the rank's log"
    assert EXP.why(str(tmp_path / "a")) == ""


def test_a_failure_counts_for_the_same_experiment_until_the_checkpoint_is_written_anew(tmp_path: Path) -> None:
    assert fail(tmp_path / "a", ValueError("no"))
    assert FailedLoads(lambda: "another model").why(str(tmp_path / "a")) == ""
    later = time.time() + 10
    (tmp_path / "a/data").write_text("new")
    os.utime(tmp_path / "a/data", (later, later))
    assert EXP.why(str(tmp_path / "a")) == ""
    (tmp_path / "a" / MARK).write_text("[]")
    assert EXP.why(str(tmp_path / "a")) == ""


def test_where_each_has_failed_all_are_left(tmp_path: Path) -> None:
    paths = [str(tmp_path / name) for name in "ab"]
    fail(tmp_path / "a", ValueError("no"))
    assert EXP.left(paths) == paths[1:]
    fail(tmp_path / "b", ValueError("no"))
    assert EXP.left(paths) == paths


def test_what_was_passed_over_in_an_older_run_is_told_once(tmp_path: Path) -> None:
    old, new = "small_2026_01_02_000000", "small_2026_01_03_000000"
    run(tmp_path, old, "failed", "checkpoints/1/data", "checkpoints/2/data")
    run(tmp_path, new, "failed", "checkpoints/3/data")
    fail(tmp_path / old / "checkpoints/2", ValueError("DATA_LOSS"))
    here = place(facts(tmp_path), ".", "small")
    found = Earlier(here, earlier(tmp_path, here).facts, earlier(tmp_path, here).distributed, AskedRun(), EXP)
    assert [Path(path).parent.name for path in found.files("checkpoints/*/data")] == ["3", "1"]
    assert found.notes == []


def test_a_run_is_continued_from_the_checkpoint_before_unless_its_step_is_asked_for(tmp_path: Path) -> None:
    name = "small_2026_01_02_000000"
    run(tmp_path, name, "failed", "checkpoints/1/data", "checkpoints/2/data")
    fail(tmp_path / name / "checkpoints/2", ValueError("DATA_LOSS"))
    here = place(facts(tmp_path), ".", "small")
    first = earlier(tmp_path, here)
    assert len(first.files("checkpoints/*/data")) == 2  # nobody said what the experiment is
    for asked, left in ((AskedRun(), ["1"]), (AskedRun("--continue", str(tmp_path / name), 2), ["1", "2"])):
        found = Earlier(here, first.facts, first.distributed, asked, EXP)
        assert [Path(path).parent.name for path in found.files("checkpoints/*/data")] == left
        told = [f"skips {name}/checkpoints/2: it could not be loaded (ValueError: DATA_LOSS)"]
        assert found.notes == (told if len(left) == 1 else [])
