"""A training run that is replayed trains the same: the losses are equal, step by step."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Run, checksums, plain_environ
from tests.torchtitan.quickstart import CONFIG, PRIMUS, losses, train

from primus_core.journal.record import OtherRun
from primus_core.runs.saved import load

pytest.importorskip("torchtitan", reason="torchtitan is not installed")
pytestmark = [pytest.mark.torch, pytest.mark.full, pytest.mark.xdist_group("torchtitan/test_replay.py")]

THEN = {"OMP_NUM_THREADS": "1", "NCCL_DEBUG": "WARN"}
NOW = {"OMP_NUM_THREADS": "2", "NCCL_DEBUG": "INFO", "NCCL_IB_DISABLE": "1"}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with a short run, whose experiment is gone."""
    folder = tmp_path_factory.mktemp("replay") / "project"
    folder.mkdir()
    (folder / "mine.yaml").write_text(CONFIG.read_text())
    words = [str(folder / "mine.yaml") if word == str(CONFIG) else word for word in train("training.steps=6")]
    done = subprocess.run([PRIMUS, *words], env={**plain_environ(), **THEN}, cwd=folder, text=True,
                          capture_output=True, timeout=500, stdin=subprocess.DEVNULL, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    (folder / "mine.yaml").unlink()
    shutil.copytree(folder, folder.with_name("saved"), symlinks=True)
    return folder


@pytest.fixture
def project(trained: Path) -> Path:
    """The same, as no test has touched it: a run's files hold its path, so it is at the same place for each."""
    shutil.rmtree(trained)
    return Path(shutil.copytree(trained.with_name("saved"), trained, symlinks=True))


@pytest.fixture
def run(project: Path) -> Path:
    """The directory of the run."""
    return (project / "output/quickstart").resolve()


def test_a_replay_trains_the_same_in_another_environment(primus: Run, run: Path, project: Path) -> None:
    result = primus("direct", "--", "train", "pretrain", "--replay", "output/quickstart", env=NOW, cwd=project)
    assert result.returncode == 0, result.stderr
    assert "  equal     plan, config, environment (" in result.stderr
    new = (project / "output/quickstart").resolve()
    assert new != run
    assert losses(new) == losses(run)
    assert list(losses(new)) == [1, 2, 3, 4, 5, 6]
    assert load(str(new)).record.parent == OtherRun(run.name, str(run))
    environ = load(str(new)).environment
    assert {name: environ.get(name) for name in NOW} == {**THEN, "NCCL_IB_DISABLE": None}
    assert (new / "checkpoints").is_dir(), "what it writes is its own"


def test_a_replay_of_a_run_that_continued_begins_where_that_one_began(primus: Run, run: Path, project: Path) -> None:
    known = json.loads((run / "metadata.json").read_text())
    (run / "metadata.json").write_text(json.dumps({**known, "status": "failed"}))
    more = primus(*train("training.steps=9"), env=THEN, cwd=project)
    assert more.returncode == 0, more.stderr
    continued = (project / "output/quickstart").resolve()
    assert list(losses(continued)) == [7, 8, 9]
    again = primus("replay", str(continued), env=THEN, cwd=project)
    assert again.returncode == 0, again.stderr
    assert losses((project / "output/quickstart").resolve()) == losses(continued)


def test_a_replay_leaves_a_folder_of_checkpoints_that_runs_share_as_it_is(
    primus: Run, run: Path, project: Path
) -> None:
    shared = Path(shutil.copytree(run / "checkpoints", project / "shared"))
    more = primus(*train("training.steps=8", f"checkpoint.folder={shared}"), env=THEN, cwd=project)
    assert more.returncode == 0, more.stderr
    continued, saved = (project / "output/quickstart").resolve(), checksums(shared)
    assert list(losses(continued)) == [7, 8]
    again = primus("replay", str(continued), env=THEN, cwd=project)
    assert again.returncode == 0, again.stderr
    new = (project / "output/quickstart").resolve()
    assert losses(new) == losses(continued), "it begins where that run began, though the folder has a later checkpoint"
    assert checksums(shared) == saved
    assert (new / "checkpoints/step-8").is_dir()
    said = primus("replay", str(continued), "--check", env=THEN, cwd=project).stdout
    assert f"note      config: settings.checkpoint.folder: {shared} → checkpoints" in said


def test_the_saved_settings_give_the_same_plan(primus: Run, run: Path, project: Path) -> None:
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
    shown = primus(*command, "auto_continue_train=false", env=THEN, cwd=project)
    assert shown.returncode == 0, shown.stderr
    assert settings(json.loads(shown.stdout)) == settings(load(str(run)).plan)


def settings(plan: dict[str, Any]) -> Any:
    """What the framework gets, and what prepares it, less where the run keeps its files."""
    files = {file["path"]: file["text"] for file in plan["files"]}
    prepare = [step["argv"][1:] for step in plan["steps"] if step["kind"] == "prepare"]
    text = json.dumps([json.loads(files["config/backend_config.json"]), plan["worker"], prepare], sort_keys=True)
    return json.loads(text.replace(plan["place"]["directory"], "<run>").replace(plan["place"]["run_id"], "<id>"))
