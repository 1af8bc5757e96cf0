"""Training on a real cluster that loses a rank, its nodes, or its disk comes to the same losses, or says why not."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

import pytest
from tests.lab.side_by_side import Lab
from tests.lab.slurm import wait_until
from tests.project import TASK, Project, losses
from tests.slurm.test_faults import completes, host_pid
from tests.slurm.test_training import EXPERIMENT

from primus_core.journal.events import saved_steps
from primus_torchtitan.checkpoints import is_whole


def known(project: Project) -> dict[str, Any]:
    """Of the newest run."""
    return dict(json.loads((project.newest / "metadata.json").read_text()))


def reached(project: Project) -> int:
    """The newest step of the newest run."""
    path = project.newest / "metrics.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return int(json.loads(lines[-1])["step"]) if lines else 0


@pytest.mark.timeout(1800)
def test_a_killed_rank_and_a_preemption_change_no_loss(lab: Lab) -> None:
    project, cluster = Project(lab.folder, lab.environ, EXPERIMENT), lab.cluster
    task = (*TASK, "training.steps=40", "checkpoint.interval=4")
    project("direct", *task, GPUS_PER_NODE="2")
    uninterrupted = losses(project.newest)
    (project.folder / "output" / "tiny").unlink()
    job = project("slurm", "--max-restarts", "2", "sbatch", "-N2", *task).stdout.strip()
    wait_until(lambda: reached(project) >= 6, every=0.02)
    node = json.loads((project.newest / "nodes/1/metadata.json").read_text())["host"]
    os.kill(host_pid(node, "primus_core.programs.rank", project.newest), signal.SIGKILL)
    wait_until(lambda: len(known(project)["attempts"]) == 2)
    begun = reached(project)
    wait_until(lambda: reached(project) > begun, every=0.02)
    urgent = cluster.run("sbatch", "--parsable", "-N4", "-purgent", "--exclusive", "-o/dev/null", "--wrap=sleep 1")
    assert cluster.wait(urgent.strip())["JobState"] == "COMPLETED"
    wait_until(lambda: completes(cluster, lambda: known(project), job), 1000)  # Slurm keeps it back for two minutes
    first, second, last = known(project)["attempts"]
    assert first["what"].startswith("ended by SIGKILL")
    assert second["what"] == "the job was preempted"
    assert last["exit_code"] == 0
    by_step = {row["step"]: row["loss"] for row in map(json.loads, (project.newest / "metrics.jsonl").open())}
    assert [by_step[step] for step in sorted(by_step)] == pytest.approx(uninterrupted, rel=1e-5)


def test_a_full_disk_at_a_checkpoint_is_the_reason_and_a_vain_restart_is_the_last(lab: Lab) -> None:
    project, disk = Project(lab.folder, lab.environ, EXPERIMENT), lab.cluster.small_disk
    words = ("slurm", "--max-restarts", "1", "-N2", *TASK, "checkpoint.interval=2", f"checkpoint.folder={disk}/saved")
    (disk / "fill").write_bytes(bytes(os.statvfs(disk).f_bavail * os.statvfs(disk).f_bsize - 300_000))
    try:
        done = project.run(*words)
    finally:
        (disk / "fill").unlink()
    assert done.returncode == 1, done.stderr
    assert "No space left on device" in known(project)["first_failure"]["what"], done.stderr
    assert [attempt["exit_code"] for attempt in known(project)["attempts"]] == [1, 1]
    assert "not started again" in done.stderr
    wait_until(lambda: not lab.cluster.jobs())


@pytest.mark.parametrize("way", ["scancel", "stop", "time limit", "warning"])
def test_a_training_on_two_nodes_that_is_told_to_end_saves_the_step_in_hand(lab: Lab, way: str) -> None:
    project, cluster = Project(lab.folder, lab.environ, EXPERIMENT), lab.cluster
    task = (*TASK, "training.steps=100000", "checkpoint.interval=50000")
    job = project("slurm", "sbatch", "-N2", "--", "direct", "--grace-period", "60", *task).stdout.strip()
    wait_until(lambda: reached(project) >= 6, every=0.02)
    if way == "stop":
        project.run("stop", str(project.newest))
    elif way == "scancel":
        cluster.run("scancel", job)
    elif way == "warning":  # to every process of the step, as by `srun --signal=USR1@300`
        cluster.run("scancel", "--signal=USR1", job)
    else:
        cluster.run("scontrol", "update", f"JobId={job}", "EndTime=now+1")
    wait_until(lambda: not cluster.jobs())
    last = reached(project)
    assert saved_steps(str(project.newest)) == {last}
    assert is_whole(str(project.newest / f"checkpoints/step-{last}"))
    assert known(project)["status"] == "interrupted"
