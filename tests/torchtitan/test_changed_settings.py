"""What a continuation changes is what the optimizer then holds, setting by setting."""

from __future__ import annotations

import pytest
from tests.changed_settings import compare_continued, project_with_run
from tests.project import Project

pytestmark = [pytest.mark.torch, pytest.mark.full, pytest.mark.timeout(600)]

CHANGES = {
    "lr": ("optimizer.lr=1e-4",),
    "min-lr": ("lr_scheduler.min_lr_factor=0.3",),
    "warm-up": ("lr_scheduler.warmup_steps=7",),
    "decay": ("lr_scheduler.decay_type=cosine", "lr_scheduler.decay_ratio=0.5"),
    "weight-decay": ("optimizer.weight_decay=0.3",),
    "betas": ("optimizer.beta1=0.8", "optimizer.beta2=0.9", "optimizer.eps=1e-6"),
    "clip": ("training.max_norm=0.5",),
    "batch": ("training.global_batch_size=4",),
    "steps": ("training.steps=13",),
    "workers": ("dataloader.num_workers=2",),
}
CHANGES["together"] = tuple(word for words in CHANGES.values() for word in words)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Where all of them train."""
    return project_with_run("torchtitan", tmp_path_factory.mktemp("changed"), "checkpoint.keep_latest_k=0")


@pytest.mark.parametrize("name", CHANGES)
def test_a_continued_run_trains_as_one_that_began_with_its_settings(project: Project, name: str) -> None:
    assert compare_continued(project, name, 5, *CHANGES[name]) == []
