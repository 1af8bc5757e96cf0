"""`train --verify`: the layout is verified before the ranks start."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Run
from tests.verify.trials import FAULTS

EXPERIMENT = """
work_group: t
user_name: t
exp_name: small
workspace: ./output
modules:
  pre_trainer:
    framework: torchtitan
    overrides:
      model: {family: llama3, dim: 64, n_layers: 2, n_heads: 4, vocab_size: 512}
      training: {steps: 2, seq_len: 128, local_batch_size: 1, mock_data: true}
      parallelism: {tensor_parallel_degree: 2}
"""


@pytest.fixture
def experiment(tmp_path: Path) -> str:
    """Two ranks of tensor parallelism."""
    (tmp_path / "exp.yaml").write_text(EXPERIMENT)
    return str(tmp_path / "exp.yaml")


def planned(primus: Run, *words: str, **environ: str) -> dict[str, Any]:
    """The plan of a training on two ranks."""
    done = primus("direct", "--dry-run", "--json", "--", "train", "pretrain", *words,
                  env={"GPUS_PER_NODE": "2", **environ})  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_the_step_is_planned_before_the_ranks_and_needs_an_own_layout(experiment: str, primus: Run) -> None:
    plan = planned(primus, "--config", experiment, "--verify")
    first, last = plan["steps"][0], plan["steps"][-1]
    assert (first["name"], last["kind"]) == ("verify", "worker")
    assert "verify --config" in " ".join(first["argv"])
    assert "--layouts tp=2" in " ".join(first["argv"])
    alone = planned(primus, "--config", experiment, "--verify", "parallelism.tensor_parallel_degree=1",
                    "parallelism.data_parallel_shard_degree=1", GPUS_PER_NODE="1")  # fmt: skip
    assert len(alone["steps"]) == 1
    assert any("one rank has no layout" in str(note) for note in alone["notes"])
    larger = planned(primus, "--config", experiment, "--verify", "parallelism.context_parallel_degree=2", "training.seq_len=256",
                     "compile.enable=true", GPUS_PER_NODE="8")  # fmt: skip
    notes = "\n".join(str(note) for note in larger["notes"])
    assert "--verify: not tried: compile.enable=true: trials are not compiled" in notes
    assert "it has 8 ranks, and at most 4 are tried" in notes


def test_another_value_of_the_variable_is_refused(experiment: str, primus: Run) -> None:
    done = primus(
        "direct", "--", "train", "pretrain", "--config", experiment, env={"PRIMUS_VERIFY": "yes", "GPUS_PER_NODE": "2"}
    )
    assert done.returncode == 2
    assert "PRIMUS_VERIFY is 'yes'" in done.stderr


def test_an_own_layout_that_cannot_be_tried_is_refused_with_how_to_train_anyway(experiment: str, primus: Run) -> None:
    words = ("verify", "--config", experiment, "--layouts", "tp=3", "--before-training")
    done = primus("direct", "--", *words)
    assert done.returncode == 2
    assert "fix: to train without verifying, leave out --verify" in done.stderr
    assert "--before-training" not in primus("direct", "--", "verify", "--help").stdout


@pytest.mark.full
def test_a_wrong_layout_starts_no_training_and_an_equal_one_is_shown_with_the_run(
    experiment: str, primus: Run, tmp_path: Path
) -> None:
    words = ("direct", "--", "train", "pretrain", "--config", experiment, "--verify")
    environ = {"GPUS_PER_NODE": "2", "PRIMUS_CACHE": str(tmp_path / "cache")}
    fault = {"PRIMUS_TEST_FAULT": "titan_norms_halved", "PYTHONPATH": str(FAULTS)}
    wrong = primus(*words, env={**environ, **fault})
    assert wrong.returncode == 1, wrong.stderr
    assert "0.50 of the reference" in wrong.stdout + wrong.stderr
    assert "to train without verifying, leave out --verify" in wrong.stdout + wrong.stderr
    assert not list(tmp_path.glob("output/small_*/checkpoints"))
    right = primus(*words, env=environ)
    assert right.returncode == 0, right.stderr
    assert "verified   tp=2,mbs=1 equal" in primus("runs", "show", "small").stdout
