"""Hooks and patches of a training."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.conftest import Run
from tests.core.test_direct import metadata, run_of
from tests.core.test_scripts import EXPERIMENT, ran, stage, write

__all__ = ["stage"]


@pytest.mark.full
def test_hooks_of_the_project_of_primus_yaml_beside_the_experiment_and_of_the_command_line_run_in_this_order(
    primus: Run, third_party: str, stage: Path
) -> None:
    write(stage / "exp/exp.yaml", EXPERIMENT)
    for place in ("hooks", "named", "exp/hooks", "given", "again"):
        write(stage / place / "1.sh", f"echo '>{place}'\n")
    for patch in ("p/first", "p/second"):
        write(stage / f"{patch}.sh", f"echo '>{patch}'\n")
    yaml = "plugins: [./tasks.py]\nhooks: {folders: [./named], patches: [./p/first.sh]}\n"
    write(stage / "primus.yaml", yaml)
    options = ("--hooks", "given", "--patch", "p/second.sh", "--hooks", "again")
    words = ("train", "pretrain", "--config", "exp/exp.yaml")
    result = primus("direct", "--single", *options, "--", *words, cwd=stage, env={"PYTHONPATH": third_party})
    assert result.returncode == 0, result.stderr
    assert ran(result) == ["hooks", "named", "exp/hooks", "given", "again", "p/first", "p/second"]


@pytest.mark.full
def test_for_training_extra_is_a_setting(primus: Run, third_party: str, stage: Path) -> None:
    write(stage / "exp.yaml", EXPERIMENT)
    write(
        stage / "hooks/train/pretrain/1.py",
        "print('extra.steps=2')\nprint('extra.loss.start=8')\nprint('env.X_LAYER=h')\n",
    )
    words = ("direct", "--single", "--", "train", "pretrain", "--config", "exp.yaml", "loss.start=6")
    result = primus(*words, cwd=stage, env={"PYTHONPATH": third_party})
    assert result.returncode == 0, result.stderr
    run = run_of(stage, "down")
    assert json.loads((run / "config/backend_config.json").read_text()) == {
        "steps": 2, "loss.start": 8.0, "loss.kind": "linear",
    }  # fmt: skip
    plan = json.loads((run / "plan.json").read_text())
    assert plan["config"]["steps"] == 2
    assert next(v["value"] for v in plan["environment"] if v["name"] == "X_LAYER") == "h"
    assert "steps: 2" in (run / "config/primus_config.yaml").read_text()
    assert len((run / "metrics.jsonl").read_text().splitlines()) == 2


def test_a_setting_that_the_framework_refuses_stops_the_launch_and_is_recorded(
    primus: Run, third_party: str, stage: Path
) -> None:
    write(stage / "exp.yaml", EXPERIMENT)
    write(stage / "hooks/1.sh", "echo extra.stesp=2\n")
    words = ("direct", "--single", "--", "train", "pretrain", "--config", "exp.yaml")
    result = primus(*words, cwd=stage, env={"PYTHONPATH": third_party})
    assert result.returncode == 2
    assert "error: hook hooks/1.sh: extra.stesp=2: countdown has no setting 'stesp'" in result.stderr
    assert "command line" not in result.stderr
    assert "did you mean 'steps'?" in result.stderr
    assert "iteration" not in result.stdout
    run = run_of(stage, "down")
    record = metadata(run)
    assert (record["status"], record["exit_code"]) == ("failed", 2)
    assert "stesp" in record["first_failure"]["what"]
    events = [json.loads(line) for line in (run / "logs/events.jsonl").read_text().splitlines()]
    assert events[-1]["event"] == "run_ended"
