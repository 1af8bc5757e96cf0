"""A training is the same under every runtime: the same settings, the same losses, and again as a replay."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.lab.containers import IMAGE, Podman
from tests.lab.slurm import Cluster
from tests.project import TASK, Project, losses

pytest.importorskip("torchtitan", reason="torchtitan is not installed")
pytestmark = [pytest.mark.container, pytest.mark.torch, pytest.mark.full]

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


CONTAINER = ("container", "--image", IMAGE)
FLAGS = ("-N", "2", "-p", "other", "-t", "00:10:00", "--job-name=x", "-o", "logs/train_%j.log")
RUNTIMES = {
    "direct": ("direct",),
    "container": CONTAINER,
    "slurm": ("slurm", "srun", "-N", "2"),
    "slurm container": ("slurm", "sbatch", "--follow", *FLAGS, "--", *CONTAINER),
}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, cluster: Cluster, podman: Podman) -> Iterator[Project]:
    """Where all these runs are made."""
    yield Project(tmp_path_factory.mktemp("project"), {**cluster.environ, **podman.environ}, EXPERIMENT)
    assert not podman.containers()


@pytest.fixture(scope="module")
def runs(project: Project) -> dict[str, Path]:
    """One run under each runtime: two ranks of one machine, or one on each of two nodes."""
    found = {}
    for name, words in RUNTIMES.items():
        project(*words, *TASK, **({} if "slurm" in name else {"GPUS_PER_NODE": "2"}))
        found[name] = project.newest
    return found


def test_the_losses_are_the_same_under_every_runtime(runs: dict[str, Path]) -> None:
    alone = losses(runs["direct"])
    assert len(alone) == 4
    for run in runs.values():
        assert losses(run) == pytest.approx(alone, rel=1e-5)
        assert [log.name for log in sorted((run / "logs").glob("rank_*.log"))] == ["rank_0.log", "rank_1.log"]
    for name in ("slurm", "slurm container"):
        first, last = (json.loads((runs[name] / f"{part}plan.json").read_text()) for part in ("", "nodes/1/"))
        assert first["config"] == last["config"]


def test_a_submitted_training_in_containers_is_the_job_that_was_asked_for(
    runs: dict[str, Path], cluster: Cluster, project: Project
) -> None:
    run = runs["slurm container"]
    known = json.loads((run / "metadata.json").read_text())
    said = cluster.run("scontrol", "--oneliner", "show", "job", known["job_id"])
    log = project.folder / f"logs/train_{known['job_id']}.log"
    for field in ("JobName=x", "Partition=other", "NumNodes=2", "TimeLimit=00:10:00", f"StdOut={log}"):
        assert f" {field} " in f" {said.strip()} "
    assert log.read_text().count("primus: completed in") == 1, "the first node says it"
    for part in ("", "nodes/1/"):
        assert f"PRIMUS_IMAGE={IMAGE}" in (run / f"{part}env/primus_env_dump.txt").read_text()


@pytest.mark.parametrize(
    ("one", "other", "layout"),
    [("direct", "container", False), ("direct", "slurm", True), ("slurm", "slurm container", False)],
)
def test_between_two_runtimes_only_their_nature_differs(
    project: Project, runs: dict[str, Path], one: str, other: str, layout: bool
) -> None:
    told = project("runs", "diff", str(runs[one]), str(runs[other]), "--json")
    rows = {row["name"]: (row["before"], row["after"]) for row in json.loads(told.stdout)["differences"]}
    assert rows.pop("runtime") == (one, other)
    assert sorted(rows) == (["OMP_NUM_THREADS", "gpus_per_node", "nnodes"] if layout else [])


def test_text_is_prepared_once_for_all_of_them(project: Project, runs: dict[str, Path]) -> None:
    [prepared] = (project.folder / "cache/primus/data").iterdir()
    for name, run in runs.items():
        for part in ("", "nodes/1/") if "slurm" in name else ("",):
            said = "prepared in" if name == "direct" else "prepared before in"
            assert f"{said} {prepared}\n" in (run / f"{part}logs/launch.log").read_text()


@pytest.mark.parametrize(
    ("source", "target"), [("direct", "slurm"), ("direct", "container"), ("slurm container", "direct")]
)
def test_a_replay_under_another_runtime_loses_the_same(
    project: Project, runs: dict[str, Path], source: str, target: str
) -> None:
    project("replay", str(runs[source]), *RUNTIMES[target])
    assert project.newest not in runs.values()
    assert losses(project.newest) == pytest.approx(losses(runs[source]), rel=1e-5)
