"""Training on the nodes of a real cluster is the training of one machine: the same settings, the same losses."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Run, wait_until
from tests.lab.slurm import Cluster
from tests.slurm.test_faults import completes, host_pid

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


def run_of(folder: Path) -> Path:
    return (folder / "output" / "tiny").resolve()


def known(folder: Path) -> dict[str, Any]:
    return dict(json.loads((run_of(folder) / "metadata.json").read_text()))


def reached(folder: Path) -> int:
    """The newest step."""
    path = folder / "output" / "tiny" / "metrics.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return json.loads(lines[-1])["step"] if lines else 0


def test_a_killed_rank_and_a_preemption_change_no_loss(
    primus: Run, on_cluster: dict[str, str], cluster: Cluster, experiment: Path
) -> None:
    task = ("train", "pretrain", "--config", "exp.yaml", "training.steps=40", "checkpoint.interval=4")
    whole = primus("direct", "--", *task, cwd=experiment, env={"GPUS_PER_NODE": "2"})
    assert whole.returncode == 0, whole.stderr
    uninterrupted = losses(experiment)
    (experiment / "output" / "tiny").unlink()
    words = ("slurm", "--max-restarts", "2", "sbatch", "-N2", "--", *task)
    job = primus(*words, cwd=experiment, env=on_cluster).stdout.strip()
    wait_until(lambda: reached(experiment) >= 6, 90)
    os.kill(host_pid(json.loads((run_of(experiment) / "nodes/1/metadata.json").read_text())["host"],
                     "primus_core.rank", run_of(experiment)), signal.SIGKILL)  # fmt: skip
    wait_until(lambda: len(known(experiment)["attempts"]) == 2, 60)
    begun = reached(experiment)
    wait_until(lambda: reached(experiment) > begun, 90)
    urgent = cluster.run("sbatch", "--parsable", "-N4", "-purgent", "--exclusive", "-o/dev/null", "--wrap=sleep 1")
    assert cluster.wait(urgent.strip(), 120)["JobState"] == "COMPLETED"
    wait_until(lambda: completes(cluster, lambda: known(experiment), job), 240)
    # Slurm may still end what it preempted when the job begins again so soon: then there is one attempt more.
    first, second, *_, last = known(experiment)["attempts"]
    assert first["what"].startswith("ended by SIGKILL")
    assert second["what"] == "the job was preempted"
    assert last["exit_code"] == 0
    by_step = {row["step"]: row["loss"] for row in map(json.loads, (run_of(experiment) / "metrics.jsonl").open())}
    assert [by_step[step] for step in sorted(by_step)] == pytest.approx(uninterrupted, rel=1e-5)


def test_a_full_disk_at_a_checkpoint_is_the_reason_and_a_vain_restart_is_the_last(
    clean_environ: dict[str, str], on_cluster: dict[str, str], cluster: Cluster, experiment: Path
) -> None:
    disk = cluster.small_disk
    folder = disk / "checkpoints"
    task = ("train", "pretrain", "--config", "exp.yaml", "checkpoint.interval=2", f"checkpoint.folder={folder}")
    (disk / "fill").write_bytes(bytes(os.statvfs(disk).f_bavail * os.statvfs(disk).f_bsize - 300_000))
    command = [str(Path(sys.executable).with_name("primus")), "slurm", "--max-restarts", "1", "-N2", "--", *task]
    try:
        done = subprocess.run(
            command, cwd=experiment, env={**clean_environ, **on_cluster}, text=True, capture_output=True, timeout=240,
            check=False,
        )  # fmt: skip
    finally:
        (disk / "fill").unlink()
    assert done.returncode == 1, done.stderr
    assert "No space left on device" in known(experiment)["first_failure"]["what"], done.stderr
    assert [attempt["exit_code"] for attempt in known(experiment)["attempts"]] == [1, 1]
    assert "not started again" in done.stderr
    assert not cluster.jobs()
