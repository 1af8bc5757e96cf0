"""Training on the nodes of a real cluster is the training of one machine: the same settings, the same losses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.conftest import Run
from tests.lab.slurm import Cluster

pytest.importorskip("torchtitan", reason="torchtitan is not installed")
pytestmark = [pytest.mark.torch, pytest.mark.slow]

EXPERIMENT = """
exp_name: tiny
modules:
  pre_trainer:
    framework: torchtitan
    config: pre_trainer.yaml
    overrides:
      model: {family: llama3, dim: 64, n_layers: 4, n_heads: 4, n_kv_heads: 2, vocab_size: 512}
      data: {text: text}
      training: {steps: 4, seq_len: 64, local_batch_size: 4}
      optimizer: {lr: 1e-3}
      lr_scheduler: {warmup_steps: 1}
      loss: {kind: cross_entropy}
      activation_checkpoint: {mode: none}
      metrics: {log_freq: 1}
      debug: {seed: 7}
"""


@pytest.fixture
def experiment(tmp_path: Path) -> Path:
    """A folder with the experiment and its text."""
    source = tmp_path / "text"
    source.mkdir()
    for number in range(40):
        (source / f"{number}.md").write_text("\n".join(f"w{(number * 13 + i * i) % 211} of {i}" for i in range(400)))
    (tmp_path / "exp.yaml").write_text(EXPERIMENT, encoding="utf-8")
    return tmp_path


def losses(folder: Path) -> list[float]:
    """Of the newest run."""
    lines = (folder / "output" / "tiny" / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line)["loss"] for line in lines]


def test_two_nodes_train_together_as_two_ranks_of_one_machine_do(
    primus: Run, on_cluster: dict[str, str], cluster: Cluster, experiment: Path
) -> None:
    task = ("train", "pretrain", "--config", "exp.yaml")
    done = primus("direct", "--", *task, cwd=experiment, env={"GPUS_PER_NODE": "2"})
    assert done.returncode == 0, done.stderr
    alone = losses(experiment)
    (experiment / "output" / "tiny").unlink()
    done = primus("slurm", "srun", "-N", "2", "--", "direct", "--", *task, cwd=experiment, env=on_cluster)
    assert done.returncode == 0, done.stderr
    together = losses(experiment)
    assert len(together) == 4
    assert together == pytest.approx(alone, rel=1e-5)
    run = (experiment / "output" / "tiny").resolve()
    first, last = (json.loads((run / f"{part}plan.json").read_text()) for part in ("", "nodes/1/"))
    assert first["config"] == last["config"]
    assert [log.name for log in sorted((run / "logs").glob("rank_*.log"))] == ["rank_0.log", "rank_1.log"]
