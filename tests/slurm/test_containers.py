"""The whole nest on a real cluster: Slurm starts containers, and the ranks run inside them."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.conftest import Run
from tests.lab import containers
from tests.lab.slurm import Cluster, wait_until

pytestmark = pytest.mark.container

INSIDE = ("container", "--image", containers.IMAGE, "--", "direct", "--", "ranks")


@pytest.fixture
def environ(on_cluster: dict[str, str], podman: containers.Podman) -> dict[str, str]:
    """What finds both."""
    return {**on_cluster, **podman.environ}


def test_ranks_run_in_containers_on_both_nodes_of_a_submitted_job(
    primus: Run, environ: dict[str, str], cluster: Cluster, podman: containers.Podman, folder: Path
) -> None:
    flags = ("-N", "2", "-p", "other", "-t", "00:10:00", "--job-name=x", "-o", "logs/train_%j.log")
    done = primus("slurm", "sbatch", *flags, "--", *INSIDE, "exit", "7", "1", cwd=folder, env=environ)
    assert done.returncode == 0, done.stderr
    job = done.stdout.strip()
    said = cluster.wait(job)
    log = (folder / f"logs/train_{job}.log").read_text()
    assert (said["JobState"], said["ExitCode"], said["Partition"]) == ("FAILED", "7:0", "other"), log
    run = (folder / "output/ranks").resolve()
    assert [path.name for path in run.parent.iterdir() if not path.is_symlink()] == [run.name]
    assert "rank 0 of 2" in (run / "logs/rank_0.log").read_text()
    assert "rank 1 of 2" in (run / "logs/rank_1.log").read_text()
    known = json.loads((run / "metadata.json").read_text())
    assert (known["status"], known["exit_code"], known["first_failure"]["rank"]) == ("failed", 7, 1)
    assert not podman.containers()


def test_an_image_that_a_node_does_not_have_is_exit_code_3(primus: Run, environ: dict[str, str], folder: Path) -> None:
    image = ("container", "--image", "localhost/no-such-image:1")
    done = primus("slurm", "srun", "-N", "1", "--", *image, "--", "ranks", "say", cwd=folder, env=environ)
    assert done.returncode == 3, done.stderr
    assert "could not start the command (exit code 125)" in done.stderr
    assert json.loads((folder / "output/ranks/metadata.json").read_text())["exit_code"] == 3


def test_a_signal_ends_the_containers_of_all_nodes(
    clean_environ: dict[str, str], environ: dict[str, str], cluster: Cluster, podman: containers.Podman, folder: Path
) -> None:
    command = [str(Path(sys.executable).with_name("primus")), "slurm", "-N2", "--", *INSIDE, "wait"]
    process = subprocess.Popen(
        command, cwd=folder, env={**clean_environ, **environ}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    logs = folder / "output" / "ranks" / "logs"
    wait_until(lambda: sum("ready" in log.read_text() for log in logs.glob("rank_*.log")) == 2)
    assert len(podman.containers()) == 2
    process.send_signal(signal.SIGTERM)
    assert process.wait(120) == 143
    wait_until(lambda: not cluster.jobs())
    wait_until(lambda: not podman.containers())
