"""A job runs what was submitted, whatever has become of the files since; so do its restarts and requeues."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Run
from tests.lab import containers, countdown
from tests.lab.slurm import Cluster

TRAIN = ("train", "pretrain", "--config", "exp.yaml")


class Project:
    """An experiment with a hook, submitted and held."""

    def __init__(self, primus: Run, folder: Path, environ: dict[str, str], cluster: Cluster) -> None:
        self.primus, self.folder, self.cluster = primus, folder, cluster
        self.environ = {**environ, "PYTHONPATH": countdown.install(folder / "site")}
        (folder / "exp.yaml").write_text(countdown.EXPERIMENT, encoding="utf-8")
        (folder / "hooks").mkdir()
        self.hook = folder / "hooks/01_own.sh"
        self.hook.write_text("echo the hook as submitted\n", encoding="utf-8")

    def submit(self, *inner: str) -> str:
        words = ("slurm", "sbatch", "-N2", "--hold", "--requeue", "--", *inner, *TRAIN)
        done = self.primus(*words, cwd=self.folder, env=self.environ)
        assert done.returncode == 0, done.stderr
        self.run = (self.folder / "output/count").resolve()
        return done.stdout.strip()

    def change(self) -> None:
        text = countdown.EXPERIMENT.replace("start: 5.0", "start: 77.0").replace("count\n", "other\n")
        (self.folder / "exp.yaml").write_text(text, encoding="utf-8")
        self.hook.unlink()
        (self.folder / "hooks/02_late.sh").write_text("exit 9\n", encoding="utf-8")

    def known(self) -> dict[str, Any]:
        return dict(json.loads((self.run / "metadata.json").read_text(encoding="utf-8")))

    def losses(self) -> list[float]:
        return [json.loads(line)["loss"] for line in (self.run / "metrics.jsonl").read_text().splitlines()]


@pytest.fixture
def project(primus: Run, folder: Path, on_cluster: dict[str, str], cluster: Cluster) -> Project:
    """The project of the test."""
    return Project(primus, folder, on_cluster, cluster)


def test_a_job_trains_as_submitted_and_so_does_its_requeue(project: Project) -> None:
    job = project.submit()
    project.change()
    project.cluster.run("scontrol", "release", job)
    log = project.run / f"logs/slurm_{job}.log"
    assert project.cluster.wait(job)["JobState"] == "COMPLETED", log.read_text()
    assert project.losses() == [2.5, 0.0]
    assert log.read_text().count("the hook as submitted") == 2, "on both nodes"
    exp, hook = f"{project.folder}/exp.yaml", f"{project.folder}/hooks/01_own.sh"
    assert project.known()["files_changed"] == {exp: "changed", hook: "removed"}
    assert f"{exp} was changed after the run was submitted; the job uses it as it was" in log.read_text()
    shown = project.primus("runs", "show", str(project.run), cwd=project.folder, env=project.environ).stdout
    assert "exp.yaml" in shown.partition("changed")[2]

    project.cluster.run("scontrol", "requeue", job)
    assert project.cluster.wait(job)["JobState"] == "COMPLETED", log.read_text()
    assert project.losses()[2:] == [2.5, 0.0]
    assert log.read_text().count("the hook as submitted") == 4


def test_a_file_with_a_secret_must_not_change_between(project: Project) -> None:
    project.hook.write_text("export WANDB_API_KEY=0123456789abcdef0123456789abcdef01234567\n", encoding="utf-8")
    job = project.submit()
    project.hook.write_text("export WANDB_API_KEY=abcdef0123456789abcdef0123456789abcdef01\n", encoding="utf-8")
    project.cluster.run("scontrol", "release", job)
    assert project.cluster.wait(job)["ExitCode"] == "2:0"
    log = (project.run / f"logs/slurm_{job}.log").read_text()
    assert f"{project.hook} was changed after the run was submitted" in log
    assert "a secret, so it was not copied" in log
    assert (project.known()["status"], project.known()["exit_code"]) == ("failed", 2)


@pytest.mark.container
def test_a_container_in_the_job_gets_what_was_submitted(project: Project, podman: containers.Podman) -> None:
    project.environ |= podman.environ
    job = project.submit("container", "--image", containers.IMAGE, "--", "direct", "--")
    project.change()
    project.cluster.run("scontrol", "release", job)
    log = project.run / f"logs/slurm_{job}.log"
    assert project.cluster.wait(job)["JobState"] == "COMPLETED", log.read_text()
    assert project.losses() == [2.5, 0.0]
    assert log.read_text().count("the hook as submitted") == 2
