"""A run that was stopped, or whose process died, goes on where it was, and loses what it would have lost anyway."""

from __future__ import annotations

import json
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("primus_maxtext", reason="primus-maxtext needs Python 3.12: hatch run maxtext:test")

from tests.conftest import wait_until
from tests.maxtext.conftest import needs_maxtext, tiny
from tests.planning import Resolve, changed, not_loadable
from tests.project import TASK, Project, rows

from primus_core.errors import ConfigError, TrainingError
from primus_maxtext.checkpoints import COMMITTED, CheckpointWatch, carry_over, set_aside, start_before, steps
from primus_train.failed_loads import FailedLoads

SAVES = tiny(enable_checkpointing=True, steps=100)


def checkpoint(run: Path, *made: int, whole: bool = True) -> None:
    for step in made:
        folder = run / "checkpoints" / str(step)
        folder.mkdir(parents=True)
        (folder / "items").write_text("weights")
        if whole:
            (folder / COMMITTED).write_text("")


def earlier(resolve: Resolve, run: Path, text: str = SAVES) -> Any:
    """A run directory as an earlier run left it, and what `previous` answers then."""
    (run / "config").mkdir(parents=True, exist_ok=True)
    (run / "config/backend_config.json").write_text(json.dumps(resolve(text).config))
    return lambda pattern: tuple(str(path) for path in sorted(run.glob(pattern)))


def test_the_newest_whole_checkpoint_of_an_unfinished_run_is_taken(resolve: Resolve, tmp_path: Path) -> None:
    run = tmp_path / "tiny_2026_01_01_000000"
    checkpoint(run, 9, 10)
    checkpoint(run, 11, whole=False)
    plan = resolve(SAVES, previous=earlier(resolve, run))
    assert plan.config["continue_from"] == str(run / "checkpoints/10")
    assert plan.loads == (f"{run}/checkpoints/10",)
    assert f"continues from step 11 of {run.name}" in plan.notes


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (10, SAVES + "auto_continue_train: false"),
        (10, SAVES + "load_parameters_path: /there/items"),
    ],
    ids=["switched off", "a start of one's own"],
)
def test_what_nobody_asked_for_is_not_continued(resolve: Resolve, tmp_path: Path, made: int, text: str) -> None:
    checkpoint(tmp_path / "earlier", made)
    plan = resolve(text, previous=earlier(resolve, tmp_path / "earlier"))
    assert (plan.config["continue_from"], plan.continues) == ("", "")
    assert plan.loads == (("/there/items",) if "/there" in text else ())
    assert [told for told in plan.notes if "continue" in told] == []


def test_a_run_that_has_made_all_steps_that_are_asked_for_is_refused(resolve: Resolve, tmp_path: Path) -> None:
    checkpoint(tmp_path / "earlier", 99)
    previous = earlier(resolve, tmp_path / "earlier")
    with pytest.raises(ConfigError, match="checkpoint of step 100 of earlier is not before step 100, where training"):
        resolve(SAVES, previous=previous)
    checkpoint(tmp_path / "earlier", 98)
    plan = resolve(SAVES, previous=previous)
    assert plan.config["continue_from"] == str(tmp_path / "earlier/checkpoints/98")
    assert "skips newer checkpoints of earlier (step 100): training ends at step 100" in plan.notes


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", []),
        ("steps: 200\ncheckpoint_period: 7\nlog_period: 3", []),
        ("base_mlp_dim: 64", ["model.base_mlp_dim"]),
        ("learning_rate: 0.5", ["learning_rate"]),
        ("init_weights_seed: 9", ["init_weights_seed"]),
    ],
)
def test_what_changes_the_training_must_not_differ(
    resolve: Resolve, tmp_path: Path, text: str, names: list[str]
) -> None:
    run, here = tmp_path / "earlier", tmp_path / "here"
    checkpoint(run, 10)
    previous = earlier(lambda text: resolve(text, run=run), run)
    kept = [line for line in SAVES.splitlines() if line.partition(":")[0] not in text]
    plan = resolve("\n".join((*kept, text)), previous=previous, run=here)
    assert plan.continues == str(run)
    assert changed(run, plan, here) == names
    assert not_loadable(run, plan, here) == [name for name in names if name == "model.base_mlp_dim"]


@pytest.mark.parametrize(("nnodes", "saved"), [(1, 2), (2, 1)])
def test_another_number_of_nodes_cannot_go_on_and_is_told_so_before_the_start(
    resolve: Resolve, tmp_path: Path, nnodes: int, saved: int
) -> None:
    text = (
        SAVES
        + "dataset_type: grain\ngrain_file_type: arrayrecord\ngrain_train_files: /there\ntokenizer_path: tokenizer.llama2\n"
    )
    text = text.replace('dataset_type: "synthetic"\n', "")
    run = tmp_path / "earlier"
    checkpoint(run, 10)
    (run / "checkpoints/10/iter").mkdir()
    for process in range(saved):
        (run / f"checkpoints/10/iter/process_{process}-of-{saved}.json").write_text("{}")
    previous = earlier(resolve, run, text)
    assert resolve(text, nnodes=saved, previous=previous).config["continue_from"], "as many go on"
    with pytest.raises(ConfigError, match=f"step 11 of earlier: nodes that saved it: {saved}, now: {nnodes}"):
        resolve(text, nnodes=nnodes, previous=previous)


def test_the_workers_of_grain_cannot_be_others_since_a_checkpoint_has_the_position_of_each(
    resolve: Resolve, tmp_path: Path
) -> None:
    grain = "dataset_type: grain\ngrain_file_type: arrayrecord\ngrain_train_files: /there\ntokenizer_path: tokenizer.llama2\n"
    text = SAVES.replace('dataset_type: "synthetic"\n', "") + grain
    run, here = tmp_path / "earlier", tmp_path / "here"
    checkpoint(run, 10)
    previous = earlier(lambda text: resolve(text, run=run), run, text)
    plan = resolve(text + "grain_worker_count: 3\n", previous=previous, run=here)
    assert not_loadable(run, plan, here) == ["grain_worker_count"]


def test_the_step_that_was_asked_for_is_taken_and_the_weights_alone_where_they_are(
    resolve: Resolve, tmp_path: Path
) -> None:
    run = tmp_path / "earlier"
    checkpoint(run, 10, 20)
    previous = earlier(resolve, run)
    assert resolve(SAVES, previous=previous, step=11).config["continue_from"] == str(run / "checkpoints/10")
    weights = resolve(SAVES, previous=previous, weights_only=True)
    assert weights.config["settings"]["load_parameters_path"] == str(run / "checkpoints/20/items")
    assert (weights.continues, weights.starts_from, weights.config["continue_from"]) == ("", str(run), "")


def test_a_checkpoint_is_carried_over_whole_or_not_at_all(tmp_path: Path) -> None:
    checkpoint(tmp_path / "then", 7)
    source, target = tmp_path / "then/checkpoints/7", tmp_path / "now/checkpoints/7"
    (tmp_path / "now/.7-carried-over").mkdir(parents=True)
    (tmp_path / "now/.7-carried-over/half").write_text("of an attempt that was killed")
    carry_over(str(source), str(target))
    carry_over(str(source), str(target))
    assert steps(str(target.parent)) == [7]
    assert sorted(path.name for path in target.iterdir()) == [COMMITTED, "items"]
    (source / "items").unlink()
    assert (target / "items").read_text() == "weights", "each run may delete its own"
    assert sorted(path.name for path in (tmp_path / "now").iterdir()) == ["checkpoints"]


def test_a_checkpoint_that_was_cut_off_is_set_aside_and_the_one_before_is_taken(
    resolve: Resolve, tmp_path: Path
) -> None:
    run, folder = tmp_path / "earlier", tmp_path / "earlier/checkpoints"
    watch = CheckpointWatch(str(folder), lambda *_: None)
    checkpoint(run, 3, 7)
    watch.look()
    assert steps(str(folder)) == [3, 7]
    (folder / "7/items").write_text("wei")
    assert resolve(SAVES, previous=earlier(resolve, run)).config["continue_from"] == str(folder / "3")
    failed = FailedLoads(lambda: "exp")
    assert set_aside(str(folder), failed) == {7: "is incomplete"}
    assert (run / "checkpoints_damaged/7").is_dir()
    assert set_aside(str(folder), failed) == {}


def test_a_checkpoint_that_could_not_be_loaded_is_set_aside_while_there_is_another(tmp_path: Path) -> None:
    folder, failed = tmp_path / "checkpoints", FailedLoads(lambda: "exp")
    checkpoint(tmp_path, 3, 7)
    with pytest.raises(TrainingError, match="DATA_LOSS"), failed.watched(str(folder / "7")):
        raise ValueError("DATA_LOSS")
    assert start_before(str(tmp_path / "new"), str(folder / "7"), failed)[0] == str(folder / "3")
    assert set_aside(str(folder), failed) == {7: "could not be loaded (ValueError: DATA_LOSS)"}
    with pytest.raises(TrainingError, match="DATA_LOSS"), failed.watched(str(folder / "3")):
        raise ValueError("DATA_LOSS")
    assert start_before(str(tmp_path / "new"), str(folder / "3"), failed) == (str(folder / "3"), {})
    assert set_aside(str(folder), failed) == {}
    assert steps(str(folder)) == [3]


def test_a_checkpoint_is_told_of_once_and_when_it_is_whole(tmp_path: Path) -> None:
    checkpoint(tmp_path, 1)
    folder, told = tmp_path / "checkpoints", list[tuple[int, str]]()
    watch = CheckpointWatch(str(folder), lambda step, path: told.append((step, path)))
    checkpoint(tmp_path, 4, whole=False)
    watch.look()
    assert not told, "one was there before, the other is not whole"
    (folder / "4" / COMMITTED).write_text("")
    watch.look()
    assert [step for step, _ in told] == [5], "a file inside it, which does not change the folder around it"
    checkpoint(tmp_path, 5)
    watch.look()
    watch.look()
    assert [step for step, _ in told] == [5, 6], "counted from 1, oldest first"
    CheckpointWatch(str(folder), lambda step, path: told.append((step, path)), told={2, 5}).look()
    assert [step for step, _ in told] == [5, 6, 6], "it was whole just before the attempt was killed"


STEPS = "steps=200"


@pytest.fixture(scope="module")
def uninterrupted(project: Project) -> dict[int, float]:
    """Loss by step."""
    project("direct", *TASK, STEPS, "exp_name=whole")
    return by_step((project.folder / "output/whole").resolve())


def by_step(run: Path) -> dict[int, float]:
    return {row["step"]: row["loss"] for row in rows(run)}


def worker_of(run: Path) -> int:
    """The process that trains in this directory."""
    program, place = b"primus_core.programs.rank\0primus_maxtext.worker", f"PRIMUS_RUN_DIR={run}\0".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            if program in (folder / "cmdline").read_bytes() and place in (folder / "environ").read_bytes():
                return int(folder.name)
    raise AssertionError(f"nothing trains in {run}")


@needs_maxtext
@pytest.mark.full
def test_a_run_that_nobody_stops_makes_every_step_once(uninterrupted: dict[int, float]) -> None:
    assert sorted(uninterrupted) == list(range(1, 201))


@needs_maxtext
@pytest.mark.full
@pytest.mark.smoke
def test_stopped_and_killed_and_continued_it_loses_what_it_would_have_lost(
    project: Project, uninterrupted: dict[int, float]
) -> None:
    """SIGTERM saves, and the next start goes on from there; SIGKILL takes what was not saved, and a restart has it."""
    with project.start("direct", *TASK, STEPS) as process:
        wait_until(lambda: len(rows(project.newest)) >= 20 or process.poll() is not None, 240)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=240)
    assert process.returncode == 143, said
    stopped = project.newest
    last = max(by_step(stopped))
    assert [event["step"] for event in events(stopped, "checkpoint_saved")][-1] == last
    with project.start("direct", "--max-restarts", "1", *TASK, STEPS) as process:
        wait_until(lambda: project.newest != stopped or process.poll() is not None, 240)
        wait_until(lambda: len(rows(project.newest)) >= 60 or process.poll() is not None, 240)
        os.kill(worker_of(project.newest), signal.SIGKILL)
        _, said = process.communicate(timeout=300)
    assert process.returncode == 0, said
    assert f"continues from step {last} of {stopped.name}" in said
    assert said.count("starting again") == 1
    twice = [row["step"] for row in rows(project.newest)]
    assert min(twice) == last + 1
    assert by_step(stopped) | by_step(project.newest) == uninterrupted, "no step is missing, and no loss is another"
    every = [(row["step"], row["loss"]) for row in rows(project.newest)]
    assert all(uninterrupted[step] == loss for step, loss in every), "nor of those that were made twice"
    assert twice.count(200) == 1


@needs_maxtext
@pytest.mark.full
def test_a_checkpoint_that_cannot_be_loaded_is_named_with_a_way_out(
    project: Project, uninterrupted: dict[int, float]
) -> None:
    """Its files are as long as they were, and hold something else."""
    assert uninterrupted
    run = (project.folder / "output/whole").resolve()
    damaged = next(path for path in (run / "checkpoints").iterdir() if path.name.isdigit())
    for file in (damaged / "items").rglob("*"):
        if file.is_file():
            file.write_bytes(bytes(file.stat().st_size))
    done = project.run("direct", *TASK, STEPS, "exp_name=astray", f"load_full_state_path={damaged / 'items'}")
    assert done.returncode == 1, done.stderr
    assert f"the checkpoint cannot be loaded: {damaged / 'items'}" in done.stderr
    assert "Traceback" not in done.stderr


def events(run: Path, kind: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in (run / "logs/events.jsonl").read_text().splitlines()]
    return [event for event in found if event["event"] == kind]
