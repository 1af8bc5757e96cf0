"""A run that an earlier version saved is shown, compared with this machine, and started again."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import ROOT, Run

from primus_core.replay import saved_plan

RECORDED = json.loads((ROOT / "tests/core/golden/run_of_schema_2.json").read_text(encoding="utf-8"))
TASKS = """
from primus_core import register_task


@register_task("greet all", scope="rank")
def greet(call):
    "Say hello from each rank."
    import os
    print("hello", call.rank, call.world_size, *call.words, os.environ["GREETING"])
"""


@pytest.fixture
def former(tmp_path: Path) -> Path:
    """The run directory."""
    return written(RECORDED, tmp_path / "project")


def written(recorded: dict[str, Any], project: Path) -> Path:
    """A recorded run in its directory, in a project with the file that it names."""
    run = project / "output" / str(recorded["name"])
    places = {"{project}": str(project), "{python}": sys.executable}
    sums = {}
    for name, text in recorded["files"].items():
        for mark, place in places.items():
            text = text.replace(mark, place)  # noqa: PLW2901
        path = run / name.replace("{project}", str(project))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        path.chmod(int(recorded["modes"][name], 8))
        if name in recorded["in_snapshot"]:
            sums[name] = {"sha256": hashlib.sha256(text.encode()).hexdigest(), "bytes": len(text.encode())}
    (run / "snapshot.json").write_text(json.dumps({**recorded["snapshot"], "files": sums}), encoding="utf-8")
    (project / "tasks.py").write_text(TASKS, encoding="utf-8")
    return run


@pytest.mark.torch
def test_it_is_listed_and_shown(primus: Run, former: Path) -> None:
    shown = primus("runs", "show", str(former))
    assert shown.returncode == 0, shown.stderr
    assert "greet all" in shown.stdout
    assert "completed" in primus("runs", "list", cwd=former.parent.parent).stdout


def test_it_can_be_compared_with_this_machine(primus: Run, former: Path) -> None:
    checked = primus("replay", str(former), "--check", cwd=former.parent.parent)
    assert checked.returncode == 0, checked.stderr
    assert "schema" not in checked.stdout + checked.stderr


def test_it_starts_again_with_its_hook_and_its_own_words(primus: Run, former: Path) -> None:
    again = primus("replay", str(former), cwd=former.parent.parent)
    assert again.returncode == 0, again.stderr
    assert "hello 0 1 1 2 from a hook" in again.stdout
    (new,) = (path for path in former.parent.iterdir() if path.name != former.name and not path.is_symlink())
    assert json.loads((new / "plan.json").read_text())["schema"] == 3


@pytest.mark.parametrize("before", ["primus_core.indexed_text", "primus_train.text.prepare"])
def test_a_program_that_moved_since_is_started_by_its_present_name(before: str) -> None:
    plan = json.loads(RECORDED["files"]["plan.json"])
    plan["steps"][0]["argv"] = ["python", "-m", before, "--source", "python-stdlib"]
    loaded = saved_plan.load(json.dumps(plan))
    assert loaded.steps[0].argv == ("python", "-m", "primus_data.training.prepare", "--source", "python-stdlib")
