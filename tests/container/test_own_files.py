"""A person's own files and what they trust, as a container gets them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from tests.conftest import Run
from tests.core.test_own_plugins import env, own
from tests.core.test_trust import STRANGER, home, needs_root

__all__ = ["env", "home", "own"]


@pytest.mark.full
def test_a_container_and_a_job_have_them_too(primus: Run, own: Path, env: dict[str, str]) -> None:
    words = ("container", "--dry-run", "--json", "--image", "IMG", "--engine", "podman", "--", "mine")
    (own.parents[3] / "work").mkdir()
    planned = primus(*words, env=env, cwd=own.parents[3] / "work")
    assert planned.returncode == 0, planned.stderr
    argv = json.loads(planned.stdout)["steps"][-1]["argv"]
    assert any(f"{own}/mine.py" in word for word in argv), "it is seen inside"
    told = {v["name"]: v["value"] for v in json.loads(planned.stdout)["environment"]}
    assert told["PRIMUS_PLUGINS"] == str(own)
    job = primus("slurm", "--dry-run", "--json", "sbatch", "--", "mine", env=env, cwd=own.parents[3] / "work")
    assert any(f["path"].endswith(f"{own}/mine.py") for f in json.loads(job.stdout)["files"]), "a job has a copy"
    inside = {"HOME": "/nowhere", "PRIMUS_PLUGINS": str(own), "PRIMUS_OUTER": "container"}
    assert primus("plugins", env=inside).stdout.count("mine") >= 1


@needs_root
@pytest.mark.parametrize(("mode", "handed"), [(0o777, False), (0o2775, False), (0o1777, True), (0o755, True)])
def test_what_others_can_replace_is_asked_about_again_inside(
    primus: Run, home: Path, tmp_path: Path, mode: int, handed: bool
) -> None:
    """A job may wait for hours: what was believed by its path may be another file when it begins."""
    work = tmp_path / "shared/mine"
    work.mkdir(parents=True)
    os.chown(work.parent, 0, STRANGER)
    work.parent.chmod(mode)
    (work / "primus.yaml").write_text("workspace: runs\n")
    shown = primus("container", "--dry-run", "--json", "--image", "img", "--", "mine", cwd=work)
    assert shown.returncode == 0, shown.stderr
    variables = {row["name"]: row["value"] for row in json.loads(shown.stdout)["environment"]}
    assert (f"{work}/primus.yaml" in variables["PRIMUS_TRUSTED"].split(":")) == handed
