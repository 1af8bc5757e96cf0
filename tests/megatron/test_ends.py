"""A training that is told to end, at each moment and in each way, and one whose ranks are killed while it saves."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from tests.damaged_checkpoints import continue_damaged
from tests.end_cells import Cell, cells, judge, judge_on_slurm, project_of
from tests.kill_loop import kill_while_it_saves
from tests.lab.slurm import Cluster
from tests.lab.two_nodes import cluster
from tests.project import Project

__all__ = ["cluster"]

pytestmark = [pytest.mark.torch, pytest.mark.full, pytest.mark.timeout(1500),
              pytest.mark.skipif(not importlib.util.find_spec("megatron"), reason="megatron-core is not installed")]  # fmt: skip


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Where all cells of this file train."""
    return project_of("megatron", tmp_path_factory.mktemp("ends"))


@pytest.mark.parametrize("cell", cells("megatron"), ids=lambda cell: cell.name)
def test_nothing_is_lost_without_a_word(project: Project, cell: Cell) -> None:
    assert judge(cell, project) == []


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_checkpoint_with_damaged_content_is_passed_over_at_the_next_start(tmp_path: Path, ranks: int) -> None:
    assert continue_damaged("megatron", project_of("megatron", tmp_path / "own"), ranks) == []


def test_there_is_always_a_whole_checkpoint_and_what_is_foreign_stays(tmp_path: Path) -> None:
    assert kill_while_it_saves("megatron", project_of("megatron", tmp_path / "own"), kills=4, seed=1) == []


@pytest.mark.slurm
@pytest.mark.parametrize("way", ["scancel", "stop", "limit", "preemption"])
def test_a_training_on_two_nodes_that_is_told_to_end_saves_the_step_in_hand(
    project: Project, cluster: Cluster, way: str
) -> None:
    assert judge_on_slurm(way, "megatron", project, cluster) == []
