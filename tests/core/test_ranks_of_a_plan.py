"""The number of ranks in a plan and in the record is the number that starts, and several nodes share one run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Run
from tests.core.test_direct import metadata, run_of

TASKS = """\
from primus_core import register_task


@register_task("once")
def once(words):
    return 0


@register_task("each", scope="node")
def each(words):
    return 0
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder with a task for each scope that starts no ranks."""
    (tmp_path / "tasks.py").write_text(TASKS, encoding="utf-8")
    (tmp_path / "primus.yaml").write_text("plugins: [tasks.py]\n", encoding="utf-8")
    return tmp_path


def planned(primus: Run, site: Path, task: str, **env: str) -> dict[str, Any]:
    """The dry run's plan."""
    result = primus("direct", "--dry-run", "--json", "--", task, cwd=site, env=env)
    assert result.returncode == 0, result.stderr
    return dict(json.loads(result.stdout))


@pytest.mark.full
def test_a_task_without_ranks_is_recorded_with_the_one_process_that_starts(primus: Run, site: Path) -> None:
    assert primus("direct", "--", "once", cwd=site, env={"GPUS_PER_NODE": "2"}).returncode == 0
    assert metadata(run_of(site, "once"))["world_size"] == 1


@pytest.mark.parametrize(("task", "once"), [("once", True), ("each", False)])
def test_a_task_without_ranks_starts_once_or_once_per_node(primus: Run, site: Path, task: str, once: bool) -> None:
    node = {"NNODES": "2", "NODE_RANK": "0", "MASTER_ADDR": "localhost", "GPUS_PER_NODE": "4"}
    place = planned(primus, site, task, **node)["distributed"]
    assert (place["gpus_per_node"], place["once"]) == (1, once)


@pytest.mark.full
def test_a_node_with_its_own_run_directory_says_how_to_share_one(primus: Run, site: Path) -> None:
    node = {"NNODES": "2", "NODE_RANK": "1", "MASTER_ADDR": "localhost"}
    [note] = [note for note in planned(primus, site, "each", **node)["notes"] if "PRIMUS_RUN_DIR" in note]
    assert note.startswith("node rank 1 keeps its logs and events in its own run directory")
    shared = {**node, "PRIMUS_RUN_DIR": str(site / "shared")}
    assert not any("PRIMUS_RUN_DIR" in note for note in planned(primus, site, "each", **shared)["notes"])
    assert not any(
        "PRIMUS_RUN_DIR" in note for note in planned(primus, site, "each", **{**node, "NODE_RANK": "0"})["notes"]
    )
