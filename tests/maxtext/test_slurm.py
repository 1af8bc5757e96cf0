"""Two nodes of a real Slurm cluster train one model with MaxText, and go on from what both have saved."""

from __future__ import annotations

import pytest

pytest.importorskip("primus_maxtext", reason="primus-maxtext needs Python 3.12: hatch run maxtext:test")

from tests.lab.slurm import Cluster
from tests.lab.two_nodes import cluster
from tests.maxtext.conftest import needs_maxtext
from tests.project import TASK, Project, losses, rows

__all__ = ["cluster"]

pytestmark = [pytest.mark.slurm, pytest.mark.full, needs_maxtext]

ON_FOUR = ("ici_fsdp_parallelism=4", "per_device_batch_size=1")
TWO_NODES = ("slurm", "srun", "-N", "2")


def test_two_nodes_with_two_devices_each_lose_what_one_with_four_does_and_go_on(
    project: Project, cluster: Cluster
) -> None:
    project("direct", *TASK, *ON_FOUR, "steps=4", "exp_name=one", GPUS_PER_NODE="4")
    alone = losses((project.folder / "output/one").resolve())
    on_cluster = {**cluster.environ, "GPUS_PER_NODE": "2"}
    stopped = project.run(*TWO_NODES, *TASK, *ON_FOUR, "steps=4", "checkpoint_period=2", **on_cluster)
    assert stopped.returncode == 0, stopped.stderr[-5000:]
    assert losses(project.newest) == pytest.approx(alone, rel=1e-4)
    assert (project.newest / "checkpoints/3/commit_success.txt").exists()
    assert [log.name for log in sorted((project.newest / "logs").glob("rank_*.log"))] == ["rank_0.log", "rank_1.log"]
    (project.newest / "metadata.json").write_text(
        (project.newest / "metadata.json").read_text().replace('"completed"', '"failed"')
    )
    project(*TWO_NODES, *TASK, *ON_FOUR, "steps=6", **on_cluster)
    assert [row["step"] for row in rows(project.newest)] == [5, 6]
    log = (project.newest / "logs/rank_0.log").read_text()
    assert "continues from step 4" in log
