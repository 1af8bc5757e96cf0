"""Whose checkpoints and experiments a training believes."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from tests.conftest import Run
from tests.core.test_direct import metadata
from tests.core.test_trust import STRANGER, give, home, needs_root
from tests.train.test_continuation import BACKEND, EXPERIMENT, TRAIN

__all__ = ["home"]


@pytest.fixture
def training(home: Path, tmp_path: Path, clean_environ: dict[str, str]) -> Path:
    """A project with a backend whose checkpoints a run continues from."""
    site, folder = tmp_path / "site", tmp_path / "project"
    (site / "steps-1.0.dist-info").mkdir(parents=True)
    (site / "steps-1.0.dist-info/entry_points.txt").write_text("[primus.backends]\nsteps = steps_backend:STEPS\n")
    loads = 'loads=tuple(filter(None, [config["start"], os.environ.get("X_LOADS")])), continues='
    (site / "steps_backend.py").write_text(BACKEND.replace("continues=", loads))
    folder.mkdir()
    (folder / "exp.yaml").write_text(EXPERIMENT)
    clean_environ["PYTHONPATH"] = str(site)
    return folder


@needs_root
@pytest.mark.parametrize("planted", ["", "saved", "config/backend_config.json"], ids=["run", "checkpoint", "settings"])
@pytest.mark.full
def test_a_planted_checkpoint_is_not_continued_until_it_is_trusted(primus: Run, training: Path, planted: str) -> None:
    assert primus(*TRAIN, "steps=4", cwd=training).returncode == 0
    run = (training / "output/small").resolve()
    (run / "metadata.json").write_text(json.dumps({**metadata(run), "status": "failed"}))
    give(run / planted) if planted else os.chown(run, STRANGER, STRANGER)
    done = primus(*TRAIN, cwd=training)
    if planted == "saved":  # the newest checkpoint of a run of one's own
        assert (done.returncode, "what would be loaded" in done.stderr) == (2, True), done.stderr
    else:
        assert done.returncode == 0, done.stderr
        assert f"does not continue {run.name}: it belongs to uid {STRANGER}; to trust it: primus trust" in done.stderr
    assert primus("trust", str(run)).returncode == 0
    shown = json.loads(primus("direct", "--dry-run", "--json", *TRAIN[1:], cwd=training).stdout)
    assert shown["loads"] == [f"{run}/saved"] or planted != "saved"
    assert "does not continue" not in " ".join(shown["notes"])


@needs_root
@pytest.mark.full
def test_a_strangers_checkpoint_is_not_loaded_until_it_is_trusted(primus: Run, training: Path, tmp_path: Path) -> None:
    deep = tmp_path / "weights/iter_0000001"
    deep.mkdir(parents=True)
    (deep / "rank_0.pt").write_text("a pickle")
    give(deep / "rank_0.pt")
    environ = {"X_LOADS": str(deep.parent)}
    done = primus(*TRAIN, env=environ, cwd=training)
    assert done.returncode == 2
    assert f"{deep}/rank_0.pt: it belongs to uid {STRANGER}" in done.stderr
    assert f"primus trust {deep.parent}" in done.stderr
    assert primus("trust", str(deep.parent)).returncode == 0
    assert primus(*TRAIN, "steps=1", env=environ, cwd=training).returncode == 0


@needs_root
@pytest.mark.parametrize("included", ["extends: ./base.yaml", "model: ./base.yaml"])
@pytest.mark.full
def test_a_named_experiment_is_read_and_what_it_includes_must_be_trusted(
    primus: Run, training: Path, included: str
) -> None:
    give(training / "exp.yaml")
    (training / "exp.yaml").write_text(EXPERIMENT)
    assert primus("direct", "--dry-run", *TRAIN[1:], cwd=training).returncode == 0
    text = EXPERIMENT.replace("model: {layers: 2}", included) if "model" in included else f"{included}\n{EXPERIMENT}"
    (training / "exp.yaml").write_text(text)
    (training / "base.yaml").write_text("layers: 2\n" if "model" in included else "user_name: x\n")
    give(training / "base.yaml")
    done = primus("direct", "--dry-run", *TRAIN[1:], cwd=training)
    assert done.returncode == 2
    assert "base.yaml is not trusted" in done.stderr
    assert primus("trust", str(training)).returncode == 0
    assert primus("direct", "--dry-run", *TRAIN[1:], cwd=training).returncode == 0


@needs_root
@pytest.mark.full
def test_a_teams_shared_configs_take_one_trust(primus: Run, training: Path, tmp_path: Path) -> None:
    team = tmp_path / "team"
    team.mkdir()
    (team / "base.yaml").write_text(EXPERIMENT)
    (team / "site.yaml").write_text("workspace: runs\n")
    give(team).chmod(0o755)
    (training / "exp.yaml").write_text(f"extends: {team}/base.yaml\n")
    words = ("--config", str(team / "site.yaml"), "direct", "--dry-run", *TRAIN[1:])
    assert primus(*words, cwd=training).returncode == 2
    assert primus("trust", str(team)).returncode == 0
    done = primus(*words, cwd=training)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.full
@pytest.mark.parametrize("umask", [0o022, 0o002, 0o077])
def test_ones_own_files_give_no_refusal(primus: Run, training: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        (training / "hooks").mkdir()
        (training / "hooks/1.sh").write_text("true\n")
        (training / "primus.yaml").write_text("hooks: {folders: [./hooks]}\n")
        for steps in ("4", "9"):
            done = primus(*TRAIN, f"steps={steps}", cwd=training)
            assert done.returncode == 0, done.stderr
            assert "trust" not in done.stderr
            run = (training / "output/small").resolve()
            (run / "metadata.json").write_text(json.dumps({**metadata(run), "status": "failed"}))
        assert metadata(run)["continues"], "the second continues the first"
        assert primus("replay", str(run), cwd=training).returncode == 0
    finally:
        os.umask(before)


@pytest.mark.full
@needs_root
def test_ones_own_run_in_a_teams_folder_is_continued(primus: Run, training: Path) -> None:
    """Everything that is made there belongs to the team's group, which may write to it."""
    os.chown(training, 0, STRANGER)
    training.chmod(0o2775)
    before = os.umask(0o002)
    try:
        assert primus(*TRAIN, "steps=4", cwd=training).returncode == 0
        run = (training / "output/small").resolve()
        (run / "metadata.json").write_text(json.dumps({**metadata(run), "status": "failed"}))
        done = primus(*TRAIN, cwd=training)
    finally:
        os.umask(before)
    assert done.returncode == 0, done.stderr
    assert f"continues {run.name}" in done.stderr or metadata((training / "output/small").resolve())["continues"]
