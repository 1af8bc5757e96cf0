"""Continuing a run is deliberate: the same settings go on exactly, others are refused with both ways out."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Run, wait_until
from tests.core.test_direct import metadata
from tests.core.test_lease import OTHER_HOST

PRIMUS = str(Path(sys.executable).with_name("primus"))
BACKEND = '''
"""A backend that saves after each step, and whose loss tells all that it was made from."""
import json, os, sys, time
from pathlib import Path
from primus_train.kit import options, worker
from primus_train.backend import BackendPlan
from primus_core.config.document import Document
from primus_core.journal.metrics import Metrics, append
from primus_core.plan.plan import Worker

OPTIONS = {
    "steps": options.Option("steps", "int", 5), "lr": options.Option("lr", "float", 1.0),
    "seed": options.Option("seed", "int", 0), "pause_at": options.Option("pause_at", "int", 0),
}

class Steps:
    name = "steps"
    stages = ("pretrain",)

    def presets(self):
        return "/nowhere"

    def adopt(self, document):
        return None

    def resolve(self, call):
        own = {key: value for key, value in call.document.data.items() if key not in ("model", "data")}
        settings = options.check(Document(own, call.document.marks), OPTIONS, framework="steps")
        found = call.previous("saved")
        if call.weights_only and found:
            return BackendPlan(Worker("steps_backend", launcher="single"), {"model": {}, "settings": settings, "start": "",
                               "out": "", "precision": 0}, starts_from=os.path.dirname(found[0]), notes=("takes the weights",))
        config = {"model": dict(call.config.get("model") or {}), "settings": settings, "start": found[0] if found else "",
                  "out": call.place.directory + "/out", "precision": {"gpu": 16, "cpu": 32}[call.device]}
        return BackendPlan(Worker("steps_backend", launcher="single"), config, changeable=("pause_at", "start"),
                           continues=os.path.dirname(config["start"]),
                           defaults={name: option.default for name, option in OPTIONS.items()})

STEPS = Steps()

if __name__ == "__main__":
    config, run = worker.resolved(), worker.run_directory()
    settings = {name: config["settings"].get(name, option.default) for name, option in OPTIONS.items()}
    step, loss = json.loads(Path(config["start"]).read_text()) if config["start"] else (0, 100.0)
    while step < settings["steps"]:
        step, loss = step + 1, loss * 0.9 - settings["lr"] * (step % 7) + settings["seed"]
        append(os.environ["PRIMUS_METRICS_FILE"], Metrics(step=step, steps=settings["steps"], loss=loss))
        (run / "saved.new").write_text(json.dumps([step, loss]))
        os.replace(run / "saved.new", run / "saved")
        if step == settings["pause_at"]:
            print("paused", flush=True)
            time.sleep(600)
'''
EXPERIMENT = """exp_name: small
modules:
  pre_trainer:
    framework: steps
    model: {layers: 2}
    overrides:
      steps: 9
      lr: 0.5
"""
DRY = ("direct", "--dry-run", "--", "train", "pretrain", "--config", "exp.yaml")
TRAIN = ("direct", "--", "train", "pretrain", "--config", "exp.yaml")


@pytest.fixture
def environ(clean_environ: dict[str, str], tmp_path: Path) -> dict[str, str]:
    """With this backend installed."""
    site = tmp_path / "site"
    (site / "steps-1.0.dist-info").mkdir(parents=True)
    (site / "steps-1.0.dist-info/entry_points.txt").write_text("[primus.backends]\nsteps = steps_backend:STEPS\n")
    (site / "steps_backend.py").write_text(BACKEND)
    (tmp_path / "exp.yaml").write_text(EXPERIMENT)
    return {**clean_environ, "PYTHONPATH": str(site)}


def losses(folder: Path) -> dict[int, float]:
    """Of all runs together; a step that was made twice would be refused."""
    rows: list[dict[str, Any]] = []
    for path in (folder / "output").glob("small_2*/metrics.jsonl"):
        rows += [json.loads(line) for line in path.read_text().splitlines()]
    assert len({row["step"] for row in rows}) == len(rows), "no step is made twice"
    return {row["step"]: row["loss"] for row in rows}


def newest(folder: Path) -> Path:
    return (folder / "output/small").resolve()


def interrupted(environ: dict[str, str], folder: Path, number: int = signal.SIGKILL) -> Path:
    """A run that is ended by this signal after its fourth step."""
    process = started(environ, folder)
    process.send_signal(number)
    process.communicate(timeout=60)
    return newest(folder)


def started(environ: dict[str, str], folder: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen([PRIMUS, *TRAIN, "pause_at=4"], env=environ, cwd=folder, text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "paused\n"
    return process


@pytest.mark.full
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "interrupted"])
def test_the_same_settings_are_continued_exactly_and_the_lineage_is_known(
    primus: Run, environ: dict[str, str], tmp_path: Path, number: int
) -> None:
    whole = tmp_path / "whole"
    whole.mkdir()
    (whole / "exp.yaml").write_text(EXPERIMENT)
    assert primus(*TRAIN, env=environ, cwd=whole).returncode == 0
    first = interrupted(environ, tmp_path, number)
    done = primus(*TRAIN, env=environ)
    assert done.returncode == 0, done.stderr
    assert losses(tmp_path) == losses(whole)
    second = newest(tmp_path)
    assert metadata(second)["continues"] == {"run_id": first.name, "directory": str(first)}
    assert metadata(first)["continues"] is None
    [row, _] = json.loads(primus("runs", "list", "--json").stdout)
    assert (row["name"], row["continues"]) == (second.name, first.name)
    assert f"continues  {first.name}" in primus("runs", "show", second.name).stdout
    assert "continues" in primus("runs", "list").stdout.splitlines()[0]


@pytest.mark.full
def test_another_setting_that_matters_is_refused_with_its_place_and_both_ways_out(
    primus: Run, environ: dict[str, str], tmp_path: Path
) -> None:
    first = interrupted(environ, tmp_path)
    (tmp_path / "exp.yaml").write_text(EXPERIMENT.replace("0.5", "0.25").replace("layers: 2", "layers: 3"))
    refused = primus(*TRAIN, "seed=1", env=environ)
    assert refused.returncode == 2
    assert newest(tmp_path) == first, "nothing was started"
    assert f"{first.name} would be continued, but 3 settings differ" in refused.stderr
    assert "lr: 0.5 there, 0.25 here  (exp.yaml:8)" in refused.stderr
    assert "model.layers: 2 there, 3 here  (exp.yaml:5)" in refused.stderr
    assert "seed: not set there, 1 here  (command line: seed=1)" in refused.stderr
    assert "continue anyway: --continue" in refused.stderr
    assert "start from the first step: --new" in refused.stderr
    assert primus("direct", "--dry-run", *TRAIN[1:], env=environ).returncode == 2, "a dry run, too"
    nodes = primus("config", "validate", "exp.yaml", "seed=1", "--nodes", "2", env=environ).stderr
    assert "3 settings differ; that run had 1 nodes, this one has 2\n" in nodes
    validated = primus("config", "validate", "exp.yaml", "seed=1", env=environ)
    assert (validated.returncode, validated.stderr) == (2, refused.stderr), "GPUs have nothing to do with it"

    for way_out in ("--continue", "--new"):
        assert primus("config", "validate", "exp.yaml", "seed=1", way_out, env=environ).returncode == 0, way_out

    anyway = primus(*TRAIN, "--continue", env=environ)
    assert anyway.returncode == 0, anyway.stderr
    assert "although lr: 0.5 there, 0.25 here" in anyway.stderr
    assert metadata(newest(tmp_path))["continues"]["run_id"] == first.name


@pytest.mark.full
def test_before_slurm_has_chosen_the_nodes_what_follows_from_them_is_no_other_setting(
    primus: Run, environ: dict[str, str], tmp_path: Path
) -> None:
    """A login node takes it that there are GPUs; the run was on a CPU, in another precision."""
    first = interrupted(environ, tmp_path, signal.SIGTERM)
    submit = ("slurm", "--dry-run", "sbatch", "-N", "2", *TRAIN[1:])
    planned = primus(*submit, env=environ)
    assert planned.returncode == 0, planned.stderr
    assert f'"start": "{first}/saved"' in planned.stdout, "it continues that run"
    refused = primus(*submit, "lr=0.25", env=environ)
    assert (refused.returncode, refused.stderr.count(" there, ")) == (2, 1), refused.stderr
    assert "lr: 0.5 there, 0.25 here  (command line: lr=0.25)" in refused.stderr
    (tmp_path / "exp.yaml").write_text(EXPERIMENT.replace("      lr: 0.5\n", ""))
    gone = primus(*submit, env=environ)
    assert (gone.returncode, gone.stderr.count(" there, ")) == (2, 1), gone.stderr
    assert "lr: 0.5 there, not set here" in gone.stderr


SLURM = {
    "sbatch": "echo 7",
    "srun": 'test "$1" = --version && exec echo slurm 23.11.0\nwhile test "$1" != /usr/bin/env; do shift; done\nexec "$@"',
}
"""Programs that start what they are given, on this host."""


@pytest.mark.full
def test_a_submitted_job_says_what_it_continues(primus: Run, environ: dict[str, str], tmp_path: Path) -> None:
    first = interrupted(environ, tmp_path, signal.SIGTERM)
    (tmp_path / "bin").mkdir()
    for name, text in SLURM.items():
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    environ["PATH"] = f"{tmp_path}/bin:{environ['PATH']}"
    done = primus("slurm", "sbatch", *TRAIN[1:], env=environ)
    assert done.returncode == 0, done.stderr
    run, host = newest(tmp_path), os.uname().nodename
    assert metadata(run)["continues"]["run_id"] == first.name, "while it waits"
    job = {
        "SLURM_JOB_ID": "7",
        "SLURM_NNODES": "1",
        "SLURM_NODEID": "0",
        "SLURM_JOB_NODELIST": host,
        "SLURM_NODELIST": host,
    }
    subprocess.run(["bash", str(run / "submit.sh")], env={**environ, **job}, cwd=tmp_path, check=True, timeout=120)
    assert (metadata(run)["status"], metadata(run)["continues"]["run_id"]) == ("completed", first.name)
    [row, _] = json.loads(primus("runs", "list", "--json", env=environ).stdout)
    assert (row["name"], row["continues"]) == (run.name, first.name)


@pytest.mark.full
def test_a_new_run_begins_at_the_first_step(primus: Run, environ: dict[str, str], tmp_path: Path) -> None:
    interrupted(environ, tmp_path)
    done = primus(*TRAIN, "--new", "lr=3", env=environ)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in (newest(tmp_path) / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == list(range(1, 10))
    assert metadata(newest(tmp_path))["continues"] is None


@pytest.mark.full
def test_settings_that_do_not_matter_may_change_and_a_default_may_be_written_out(
    primus: Run, environ: dict[str, str], tmp_path: Path
) -> None:
    first = interrupted(environ, tmp_path)
    done = primus(*TRAIN, "steps=6", "seed=0", "pause_at=0", env=environ)
    assert done.returncode == 0, done.stderr
    assert metadata(newest(tmp_path))["continues"]["run_id"] == first.name
    assert max(losses(tmp_path)) == 6


@pytest.mark.full
@pytest.mark.parametrize("around", [(), OTHER_HOST], ids=["here", "on another host"])
def test_while_a_run_is_alive_it_is_not_continued_and_not_started_a_second_time(
    environ: dict[str, str], tmp_path: Path, around: tuple[str, ...]
) -> None:
    def start(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*around, PRIMUS, *TRAIN, *words], env=environ, cwd=tmp_path, text=True,
                              capture_output=True, timeout=300, check=False)  # fmt: skip

    process = started(environ, tmp_path)
    try:
        first = newest(tmp_path)
        for words in ((), ("--continue",), ("--continue", "lr=9")):
            refused = start(*words)
            assert (refused.returncode, newest(tmp_path)) == (2, first), refused.stderr
            assert f"{first.name} may still be running" in refused.stderr
            assert f"process {process.pid} of " in refused.stderr
            assert f"stop it: primus stop {first}" in refused.stderr
            assert ("--new, without --continue\n" in refused.stderr) == ("--continue" in words)
        beside = start("lr=9")
        assert beside.returncode == 0, beside.stderr
        assert f"does not continue {first.name}: it may still be running" in beside.stderr
        assert metadata(newest(tmp_path))["continues"] is None
    finally:
        process.terminate()
        process.communicate(timeout=60)


def test_where_there_is_nothing_to_continue_it_is_said(primus: Run, environ: dict[str, str], tmp_path: Path) -> None:
    refused = primus(*TRAIN, "--continue", env=environ)
    assert refused.returncode == 2
    assert "--continue: there is nothing to continue" in refused.stderr
    assert not (tmp_path / "output").exists()
    both = primus(*TRAIN, "--continue", "--new", env=environ)
    assert both.returncode == 2
    assert "not allowed with" in both.stderr


@pytest.mark.full
def test_the_nodes_of_one_launch_do_not_take_each_other_for_earlier_runs(
    primus: Run, environ: dict[str, str], tmp_path: Path
) -> None:
    """Started by hand without a shared directory, each node has a run of its own."""
    first = interrupted(environ, tmp_path)
    node = {**environ, "NNODES": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "2345"}
    words = [PRIMUS, "direct", "--single", *TRAIN[1:], "pause_at=6"]
    process = subprocess.Popen(words, env={**node, "NODE_RANK": "0"}, cwd=tmp_path, text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)  # fmt: skip
    try:
        wait_until(lambda: newest(tmp_path) != first and (newest(tmp_path) / "saved").exists())
        done = primus(*TRAIN, env={**node, "NODE_RANK": "1"})
        assert done.returncode == 0, done.stderr
        assert metadata(newest(tmp_path))["continues"]["run_id"] == first.name
    finally:
        process.terminate()
        process.communicate(timeout=60)


@pytest.mark.full
def test_a_run_whose_snapshot_was_changed_is_not_continued(
    primus: Run, environ: dict[str, str], tmp_path: Path
) -> None:
    first = interrupted(environ, tmp_path)
    with (first / "config/backend_config.json").open("a") as file:
        file.write(" ")
    for words in ((), ("--continue",)):
        refused = primus(*TRAIN, *words, env=environ)
        assert refused.returncode == 2, refused.stderr
        assert f"{first.name} would be continued, but its snapshot is not complete" in refused.stderr
        assert "config/backend_config.json is damaged" in refused.stderr
    assert primus(*TRAIN, "--new", env=environ).returncode == 0


@pytest.mark.full
def test_a_workspace_that_was_moved_is_continued_all_the_same(
    primus: Run, environ: dict[str, str], tmp_path: Path
) -> None:
    first = interrupted(environ, tmp_path)
    (tmp_path / "output").rename(tmp_path / "moved")
    done = primus(*TRAIN, "workspace=moved", env=environ)
    assert done.returncode == 0, done.stderr
    found = metadata((tmp_path / "moved/small").resolve())["continues"]
    assert found == {"run_id": first.name, "directory": f"{tmp_path}/moved/{first.name}"}


def test_the_sites_workspace_holds_the_runs_of_an_experiment_that_names_none(
    primus: Run, environ: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "primus.yaml").write_text("workspace: there\n")
    done = primus(*TRAIN, "steps=3", env=environ, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    first = (tmp_path / "there/small").resolve()
    assert first.name in primus("runs", "list", env=environ, cwd=tmp_path).stdout
    assert first.name in primus(*DRY, "steps=4", "--continue", env=environ, cwd=tmp_path).stdout
    assert "primus.yaml" in primus("config", "show", "exp.yaml", "--resolved", env=environ, cwd=tmp_path).stdout
    assert f"{tmp_path}/own/" in primus(*DRY, "workspace=own", env=environ, cwd=tmp_path).stdout


@pytest.mark.parametrize("option", ["--continue", "--new"])
@pytest.mark.full
def test_a_replay_takes_neither(primus: Run, environ: dict[str, str], tmp_path: Path, option: str) -> None:
    refused = primus(*TRAIN[:4], "--replay", str(interrupted(environ, tmp_path)), option, env=environ)
    assert refused.returncode == 2
    assert "do not go with --replay" in refused.stderr


def test_a_run_that_completed_goes_on_where_a_person_says_so(
    primus: Run, environ: dict[str, str], tmp_path: Path
) -> None:
    primus(*TRAIN, "steps=3", env=environ, cwd=tmp_path)
    first = newest(tmp_path)
    anew = primus(*DRY, "steps=4", env=environ, cwd=tmp_path)
    assert "continues" not in anew.stderr
    checked = primus("config", "validate", "exp.yaml", "--continue", "steps=5", env=environ, cwd=tmp_path)
    assert checked.returncode == 0, checked.stderr
    longer = primus(*TRAIN, "--continue", "steps=5", env=environ, cwd=tmp_path)
    assert longer.returncode == 0, longer.stderr
    assert metadata(newest(tmp_path))["continues"]["directory"] == str(first)
    assert losses(tmp_path).keys() == {1, 2, 3, 4, 5}
    assert "steps=5 exp_name=mine    # the same under another name, from the first step\n" in longer.stderr


@pytest.mark.parametrize(
    "name", ["small", "output/small", "small_2", "latest"], ids=["experiment", "link", "run", "latest"]
)
def test_a_run_that_is_named_is_the_one_that_continues(
    primus: Run, environ: dict[str, str], tmp_path: Path, name: str
) -> None:
    """The link is at the new run by the time that one starts."""
    primus(*TRAIN, "steps=3", env=environ, cwd=tmp_path)
    first = newest(tmp_path)
    name = first.name if name == "small_2" else name
    longer = primus(*TRAIN, "--continue", name, "steps=5", env=environ, cwd=tmp_path)
    assert longer.returncode == 0, longer.stderr
    assert metadata(newest(tmp_path))["continues"]["directory"] == str(first)
    assert newest(tmp_path) != first


@pytest.mark.parametrize("name", ["small", "output/small", "latest"])
def test_a_launch_that_ended_before_it_began_is_not_what_a_name_means(
    primus: Run, environ: dict[str, str], tmp_path: Path, name: str
) -> None:
    primus(*TRAIN, "steps=3", env=environ, cwd=tmp_path)
    first, refused = newest(tmp_path), tmp_path / "output/small_2099_01_01_000000"
    refused.mkdir()
    (refused / "metadata.json").write_text('{"status": "failed", "exit_code": 3}')
    (tmp_path / "output/small").unlink()
    (tmp_path / "output/small").symlink_to(refused.name)
    for experiment in ("small", "another"):
        words = ("--continue", name, "steps=5", f"exp_name={experiment}")
        planned = primus(DRY[0], "--json", *DRY[1:], *words, env=environ, cwd=tmp_path)
        assert planned.returncode == 0, planned.stderr
        assert json.loads(planned.stdout)["config"]["start"] == str(first / "saved")


def test_a_checkpoint_in_the_place_of_a_run_is_told_from_one(
    primus: Run, environ: dict[str, str], tmp_path: Path
) -> None:
    checkpoint = tmp_path / "output/small_2026_01_02_030405/checkpoints/step-4"
    checkpoint.mkdir(parents=True)
    refused = primus(*DRY, "--continue", "output/small_2026_01_02_030405/checkpoints/step-4", env=environ, cwd=tmp_path)
    assert refused.returncode == 2
    assert "output/small_2026_01_02_030405/checkpoints/step-4 is a checkpoint, not a run" in refused.stderr
    assert "/output/small_2026_01_02_030405@STEP" in refused.stderr


@pytest.mark.parametrize("name", ["small", "output/small", "latest"])
def test_on_a_node_the_run_that_is_named_is_not_the_one_that_starts(
    primus: Run, environ: dict[str, str], tmp_path: Path, name: str
) -> None:
    """Its directory is there, and the link at it, before its nodes plan."""
    primus(*TRAIN, "steps=3", env=environ, cwd=tmp_path)
    first, new = newest(tmp_path), tmp_path / "output/small_2099_01_01_000000"
    new.mkdir()
    (tmp_path / "output/small").unlink()
    (tmp_path / "output/small").symlink_to(new.name)
    of_job = {**environ, "PRIMUS_RUN_DIR": str(new), "PRIMUS_OUTER": "srun"}
    words = ("--continue", name, "steps=5", "model.start=output/small/saved")
    planned = primus(DRY[0], "--json", *DRY[1:], *words, env=of_job, cwd=tmp_path)
    assert planned.returncode == 0, planned.stderr
    config = json.loads(planned.stdout)["config"]
    assert (config["start"], config["model"]["start"]) == (str(first / "saved"), str(first / "saved"))


def test_a_directory_named_by_hand_is_no_place_for_an_answer_to_which_run_is_continued(
    primus: Run, environ: dict[str, str], tmp_path: Path
) -> None:
    primus(*TRAIN, "steps=3", env=environ, cwd=tmp_path)
    by_hand = {**environ, "PRIMUS_RUN_DIR": str(newest(tmp_path))}
    for words in (("--new",), ("--continue", "small"), ("--from", "small")):
        refused = primus(*TRAIN, *words, "steps=5", env=by_hand, cwd=tmp_path)
        assert refused.returncode == 2
        assert f"{words[0]}: PRIMUS_RUN_DIR names a run that has made steps: {newest(tmp_path)}" in refused.stderr


def test_the_weights_of_another_experiment_can_be_taken(primus: Run, environ: dict[str, str], tmp_path: Path) -> None:
    primus(*TRAIN, "steps=3", env=environ, cwd=tmp_path)
    words = (*DRY, "exp_name=other")
    assert "takes the weights" in primus(*words, "--from", "small", env=environ, cwd=tmp_path).stdout
    unknown = primus(*words, "--from", "smal", env=environ, cwd=tmp_path)
    assert unknown.returncode == 2
    assert "there is no run 'smal'" in unknown.stderr
    assert "small" in unknown.stderr


def test_a_path_through_the_link_is_that_of_the_run_it_leads_to_now(
    primus: Run, environ: dict[str, str], tmp_path: Path
) -> None:
    primus(*TRAIN, "steps=3", env=environ, cwd=tmp_path)
    first = newest(tmp_path)
    again = primus(*TRAIN, "steps=4", "model.start=output/small/saved", env=environ, cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    config = json.loads((newest(tmp_path) / "config/backend_config.json").read_text())
    assert config["model"]["start"] == str(first / "saved")
