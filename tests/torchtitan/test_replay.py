"""A training run that is replayed trains the same: the losses are equal, step by step."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Run
from tests.torchtitan.test_train_command import CONFIG, losses, train

from primus_core.runs.saved import load

pytest.importorskip("torchtitan", reason="torchtitan is not installed")
pytestmark = [pytest.mark.torch, pytest.mark.slow]

THEN = {"OMP_NUM_THREADS": "1", "NCCL_DEBUG": "WARN"}
NOW = {"OMP_NUM_THREADS": "2", "NCCL_DEBUG": "INFO", "NCCL_IB_DISABLE": "1"}


@pytest.fixture
def run(primus: Run, tmp_path: Path) -> Path:
    """The directory of a short run, whose experiment is gone."""
    (tmp_path / "mine.yaml").write_text(CONFIG.read_text())
    words = [str(tmp_path / "mine.yaml") if word == str(CONFIG) else word for word in train("training.steps=6")]
    result = primus(*words, env=THEN)
    assert result.returncode == 0, result.stderr
    (tmp_path / "mine.yaml").unlink()
    return (tmp_path / "output/quickstart").resolve()


def test_a_replay_trains_the_same_in_another_environment(primus: Run, run: Path, tmp_path: Path) -> None:
    result = primus("direct", "--", "train", "pretrain", "--replay", "output/quickstart", env=NOW)
    assert result.returncode == 0, result.stderr
    assert "  equal     plan, config, environment (" in result.stderr
    new = (tmp_path / "output/quickstart").resolve()
    assert new != run
    assert losses(new) == losses(run)
    assert list(losses(new)) == [1, 2, 3, 4, 5, 6]
    assert load(str(new)).metadata["parent"] == {"run_id": run.name, "directory": str(run)}
    environ = load(str(new)).environment
    assert {name: environ.get(name) for name in NOW} == {**THEN, "NCCL_IB_DISABLE": None}
    assert (new / "checkpoints").is_dir(), "what it writes is its own"


def test_a_replay_of_a_run_that_continued_begins_where_that_one_began(primus: Run, run: Path, tmp_path: Path) -> None:
    known = json.loads((run / "metadata.json").read_text())
    (run / "metadata.json").write_text(json.dumps({**known, "status": "failed"}))
    more = primus(*train("training.steps=9"), env=THEN)
    assert more.returncode == 0, more.stderr
    continued = (tmp_path / "output/quickstart").resolve()
    assert list(losses(continued)) == [7, 8, 9]
    again = primus("replay", str(continued), env=THEN)
    assert again.returncode == 0, again.stderr
    assert losses((tmp_path / "output/quickstart").resolve()) == losses(continued)


def test_the_saved_settings_give_the_same_plan(primus: Run, run: Path) -> None:
    command = (
        "direct",
        "--dry-run",
        "--json",
        "--",
        "train",
        "pretrain",
        "--config",
        f"{run}/config/primus_config.yaml",
    )
    shown = primus(*command, "auto_continue_train=false", env=THEN)
    assert shown.returncode == 0, shown.stderr
    assert settings(json.loads(shown.stdout)) == settings(load(str(run)).plan)


def settings(plan: dict[str, Any]) -> Any:
    """What the framework gets, and what prepares it, less where the run keeps its files."""
    files = {file["path"]: file["text"] for file in plan["files"]}
    prepare = [step["argv"][1:] for step in plan["steps"] if step["kind"] == "prepare"]
    text = json.dumps([json.loads(files["config/backend_config.json"]), plan["worker"], prepare], sort_keys=True)
    return json.loads(text.replace(plan["place"]["directory"], "<run>").replace(plan["place"]["run_id"], "<id>"))
