"""What a continuation changes is what the optimizer then holds, setting by setting: its first step compares it."""

from __future__ import annotations

import importlib.util

import pytest
from tests.changed_settings import compare_continued, project_with_run
from tests.project import Project

pytestmark = [pytest.mark.full, pytest.mark.timeout(600),
              pytest.mark.skipif(not importlib.util.find_spec("maxtext"), reason="maxtext is not installed")]  # fmt: skip

CHANGES = {
    "lr": ("learning_rate=1e-4",),
    "min-lr": ("learning_rate_final_fraction=0.3",),
    "warm-up": ("warmup_steps_fraction=0.7",),
    "decay": ("learning_rate_schedule_steps=8",),
    "weight-decay": ("adam_weight_decay=0.3",),
    "betas": ("adam_b1=0.8", "adam_b2=0.9", "adam_eps=1e-6"),
    "clip": ("gradient_clipping_threshold=0.5",),
    "batch": ("per_device_batch_size=4",),
    "steps": ("steps=13",),
}
CHANGES["together"] = tuple(word for words in CHANGES.values() for word in words)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Where all of them train."""
    return project_with_run("maxtext", tmp_path_factory.mktemp("changed"))


@pytest.mark.parametrize("name", CHANGES)
def test_a_continued_run_trains_as_one_that_began_with_its_settings(project: Project, name: str) -> None:
    assert compare_continued(project, name, 5, *CHANGES[name]) == []
