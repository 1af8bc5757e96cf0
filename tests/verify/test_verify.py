"""`primus direct -- verify`, with real trainings: equal layouts, and faults that are put into a framework."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from tests.conftest import Run, plain_environ
from tests.verify.trials import Verify, texts, verifier

EXPERIMENT = """
work_group: t
user_name: t
exp_name: small
workspace: ./output
modules:
  pre_trainer:
    framework: torchtitan
    overrides:
      model: {family: llama3, flavor: 8B}
      training: {steps: 1000, seq_len: 8192, mock_data: true}
      parallelism: {tensor_parallel_degree: 8}
"""


@pytest.fixture
def experiment(tmp_path: Path) -> str:
    """A large model, for a GPU that is not here."""
    (tmp_path / "exp.yaml").write_text(EXPERIMENT)
    return str(tmp_path / "exp.yaml")


@pytest.fixture
def verify(primus: Run, tmp_path: Path) -> Verify:
    """With a cache of its own."""
    return verifier(primus, tmp_path)


@pytest.mark.full
@pytest.mark.smoke
def test_a_fault_under_tensor_parallelism_is_named_beside_a_layout_that_is_equal(
    experiment: str, verify: Verify
) -> None:
    found = verify(experiment, "--layouts", "tp=2", "repeat=1", fault="titan_norms_halved", code=1, steps=1)
    assert [one["status"] for one in found["layouts"]] == ["differs", "equal"]
    assert "gradient of layers.*.attention_norm.weight is 0.50 of the reference in every layer, from step 1" in texts(
        found
    )
    assert "tensor parallelism (tp)" in texts(found)
    again = verify(experiment, "--layouts", "tp=2", "repeat=1", fault="titan_norms_halved", code=1, steps=1)
    assert again["layouts"] == found["layouts"]
    assert "tp=2: differs, as before" in again["progress"]
    assert "training" not in again["progress"]


def test_what_is_tried_is_in_the_plan_and_nothing_starts_in_a_dry_run(experiment: str, primus: Run) -> None:
    done = primus("direct", "--dry-run", "--json", "--", "verify", "--config", experiment, "--max-ranks", "2")
    layouts = json.loads(done.stdout)["config"]["layouts"]
    assert layouts[0] == "tp=2"
    assert {"fsdp=2", "pp=2", "repeat=1"} <= set(layouts)
    assert "fsdp=4" not in layouts


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--layouts", "ttp=2"], r"unknown axis 'ttp' in layout 'ttp=2'.*did you mean 'tp'\?"),
        (["--rtol", "2"], r"--rtol: 2\.0 is not between 0 and 1"),
        (["--steps", "0"], r"--steps must be at least 1\n  fix: --steps 1\n"),
        (["--config", "missing.yaml"], r"missing\.yaml"),
        (["training.stesp=1"], r"did you mean 'training\.steps'\?"),
        (["--against", "torchtitan"], r"the experiment is of torchtitan"),
        (["--layouts", ""], r"a layout is empty"),
        (["--output", "."], r"--output"),
        (["--output", "exp.yaml/result.json"], r"--output"),
        (["--settings"], r"--settings has nothing to try"),
        (["--against", "megatorn"], r"did you mean 'megatron'\? if another environment has it.*--against-python PATH"),
        (["--against", "maxtext", "--against-python", "/nope"], r"--against-python: /nope is not a program"),
        (["--against", "mytorch"], r"does not know the framework 'mytorch'.*--against-python PATH"),
    ],
)
def test_a_wrong_request_is_refused_before_anything_starts(
    words: list[str], said: str, experiment: str, primus: Run
) -> None:
    done = primus("direct", "--", "verify", "--config", experiment, *words)
    assert done.returncode == 2
    assert re.search(said, done.stderr, re.S), done.stderr


@pytest.mark.parametrize("dry_run", [[], ["--dry-run"]])
def test_layouts_that_are_named_and_cannot_be_tried_are_refused_before_anything_starts(
    dry_run: list[str], experiment: str, primus: Run, tmp_path: Path
) -> None:
    words = ["--layouts", "tp=2", "tp=3", "fsdp=2,ep=2", "mbs=2"]
    done = primus("direct", *dry_run, "--", "verify", "--config", experiment, *words)
    assert done.returncode == 2
    assert "layout 'tp=2'" not in done.stderr
    assert done.stderr.count("layout 'tp=3' cannot be tried") == 1
    assert "expert parallelism 2 for a model without experts" in done.stderr
    assert "it is what the reference does, too" in done.stderr
    assert not (tmp_path / "output").exists()


def test_layouts_of_auto_that_cannot_be_tried_are_listed_in_the_plan(experiment: str, primus: Run) -> None:
    done = primus("direct", "--dry-run", "--json", "--", "verify", "--config", experiment)
    found = json.loads(done.stdout)["config"]
    assert found["not_tried"] == {"fsdp=2,ep=2": "expert parallelism 2 for a model without experts"}
    assert set(found["not_tried"]) < set(found["layouts"])


def test_the_small_batch_is_one_that_the_layouts_divide(experiment: str, primus: Run) -> None:
    words = ["--layouts", "dp=8", "fsdp=16", "pp=4", "fsdp=3,mbs=1"]
    done = primus("direct", "--dry-run", "--json", "--", "verify", "--config", experiment, *words)
    assert json.loads(done.stdout)["config"]["batch"] == 96
    many = primus("direct", "--", "verify", "--config", experiment, "--layouts", "fsdp=4096")
    assert "it needs a multiple of 8192 sequences in a step, and verify chose 8" in many.stderr


@pytest.mark.parametrize(
    ("old", "new", "layout"),
    [
        ("tensor_parallel_degree: 8", "tensor_parallel_degree: 8, enable_sequence_parallel: false", "tp=2,fsdp=2,sp=0"),
        ("tensor_parallel_degree: 8", "context_parallel_degree: 4", "cp=2,fsdp=2"),
        ("{family: llama3, flavor: 8B}", "{name: llama3, flavor: 8B}", "tp=2,fsdp=2"),
    ],
)
def test_the_own_layout_is_that_of_the_experiment_also_in_former_names(
    old: str, new: str, layout: str, experiment: str, primus: Run
) -> None:
    Path(experiment).write_text(EXPERIMENT.replace(old, new))
    done = primus("direct", "--dry-run", "--json", "--", "verify", "--config", experiment)
    assert json.loads(done.stdout)["config"]["layouts"][0] == layout


def test_what_the_own_layout_does_not_try_is_in_the_plan(experiment: str, primus: Run) -> None:
    settings = (
        "parallelism.pipeline_parallel_degree=4",
        "parallelism.context_parallel_degree=2",
        "compile.enable=true",
    )
    words = ("direct", "--dry-run", "--json", "--", "verify", "--config", experiment, *settings, "--layouts", "own")
    done = primus(*words, "--max-ranks", "4")
    found = json.loads(done.stdout)["config"]
    why = "it has 16 ranks, and at most 4 are tried (--max-ranks); of it, tp=2,pp=2 is tried"
    assert found["layouts"] == ["tp=2,pp=2"]
    assert found["left_out"][0] == ["tp=2,pp=2,cp=2,fsdp=2", 16, why]
    assert ["compile.enable=true", 0, "trials are not compiled"] in found["left_out"]


def test_an_own_layout_of_which_nothing_can_be_tried_is_refused_with_the_reason(experiment: str, primus: Run) -> None:
    alone = ("parallelism.tensor_parallel_degree=1", "parallelism.data_parallel_shard_degree=1", "compile.enable=true")
    done = primus("direct", "--", "verify", "--config", experiment, *alone, "--layouts", "own")
    assert done.returncode == 2
    assert "nothing of the experiment's own layout can be tried" in done.stderr
    assert "why: compile.enable=true: trials are not compiled" in done.stderr


def test_the_small_model_is_divided_as_the_large_one_and_not_the_reason(experiment: str, primus: Run) -> None:
    """It has 32 layers and 8 groups of heads: 3 divides neither."""
    done = primus("direct", "--", "verify", "--config", experiment, "--layouts", "tp=3")
    assert re.search(r"why: tensor parallelism 3 does not divide n_heads \d+\n", done.stderr), done.stderr
    assert "--shrink" not in done.stderr


def test_what_a_small_model_with_experts_cannot_do_is_known_before_anything_starts(
    experiment: str, primus: Run, tmp_path: Path
) -> None:
    """It stands for one of 128 experts, 48 layers and 4 groups of heads."""
    text = EXPERIMENT.replace("{family: llama3, flavor: 8B}", "{family: qwen3, flavor: 30B-A3B}")
    Path(experiment).write_text(text.replace("tensor_parallel_degree: 8", "tensor_parallel_degree: 4"))
    words = ("verify", "--config", experiment, "--layouts")
    done = primus("direct", "--", *words, "cp=3,ep=3", "fsdp=2,ep=4", "ep=8", "tp=8", "pp=64")
    assert done.returncode == 2
    for why in ("expert parallelism 3 does not divide 8 experts", "expert parallelism 4 does not divide 2",
                "tensor parallelism 8 does not divide n_kv_heads 2", "too few for 64 pipeline stages"):  # fmt: skip
        assert why in done.stderr, done.stderr
    assert "fix: --layouts ep=8,fsdp=8" in done.stderr
    assert "--shrink" not in done.stderr, "the large one cannot either"
    assert not (tmp_path / "output").exists()
    planned = primus("direct", "--dry-run", "--json", "--", *words, "fsdp=8,ep=8", "pp=8", "tp=4,sp=1")
    assert json.loads(planned.stdout)["config"]["not_tried"] == {}


@pytest.mark.full
@pytest.mark.parametrize(
    ("fault", "layout", "said"),
    [
        ("titan_doubled", "fsdp=2", "gradient of every parameter is 2 times the reference, from step 1"),
        ("titan_first_micro_batch", "mbs=1", "gradient of every parameter is .*a micro-batch is missing"),
        ("titan_not_a_number", "tp=2", "is not finite, or missing"),
        ("titan_tokens_counted_twice", "cp=2", "loss is 0.50 of the reference, from step 1"),
        ("titan_moment_lost", "fsdp=2", "second moment of .* from step 2"),
        (
            "titan_last_update_missed",
            "dp=2",
            "copies of tok_embeddings.weight differ between rank 0 and rank 1, after",
        ),
    ],
)
def test_a_fault_in_torchtitan_is_named(fault: str, layout: str, said: str, experiment: str, verify: Verify) -> None:
    found = verify(experiment, "--layouts", layout, fault=fault, code=1)
    assert re.search(said, texts(found)), texts(found)


@pytest.mark.full
def test_a_trial_that_hangs_is_stopped_and_the_next_one_trained(experiment: str, verify: Verify) -> None:
    """Its ranks do not end when they are told to."""
    words = ("--layouts", "fsdp=2", "repeat=1", "--timeout", "60")
    found = verify(experiment, *words, fault="titan_hangs", code=1, steps=1)
    assert [one["status"] for one in found["layouts"]] == ["failed", "equal"]
    assert "fsdp=2 took longer than 1 min (--timeout)" in found["layouts"][0]["why"]


@pytest.mark.full
@pytest.mark.parametrize("template", ["llama3.1_8B", "qwen3_30B_A3B", "deepseek_v2_lite"])
def test_small_models_of_every_kind_are_equal_in_torchtitan(
    template: str, tmp_path: Path, primus: Run, verify: Verify
) -> None:
    path = str(tmp_path / "new.yaml")
    primus("config", "new", template, "--backend", "torchtitan", "--gpu", "MI300X", "-o", path)
    found = verify(path, "--layouts", "repeat=1", "fsdp=2", "tp=2")
    assert found["verdict"] == "equal", texts(found)


@pytest.mark.full
def test_a_setting_that_changes_nothing_is_found(experiment: str, verify: Verify, tmp_path: Path) -> None:
    """A dense model has no experts whose load could be balanced."""
    text = Path(experiment).read_text() + "      optimizer: {beta2: 0.9}\n      debug: {moe_force_load_balance: true}\n"
    Path(experiment).write_text(text)
    effects = {one["name"]: one["effect"] for one in verify(experiment, "--settings")["settings"]}
    assert effects == {"optimizer.beta2": "the second moment of step 1", "debug.moe_force_load_balance": ""}


@pytest.mark.full
def test_layouts_that_were_finished_before_a_kill_are_not_trained_again(experiment: str, tmp_path: Path) -> None:
    command = [
        shutil.which("primus") or "",
        "direct",
        "--",
        "verify",
        "--config",
        experiment,
        "--layouts",
        "mbs=1",
        "fsdp=2",
    ]
    environ = {**plain_environ(), "PRIMUS_CACHE": str(tmp_path / "cache")}
    log = tmp_path / "first.log"
    with log.open("wb") as output:
        first = subprocess.Popen(
            command, cwd=tmp_path, env=environ, stdout=output, stderr=output, start_new_session=True
        )
        until = time.monotonic() + 600
        while "mbs=1: equal" not in log.read_text() and first.poll() is None and time.monotonic() < until:
            time.sleep(0.2)
        os.killpg(first.pid, signal.SIGKILL)
        first.wait()
    assert "mbs=1: equal" in log.read_text()
    again = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stdout + again.stderr
    assert "mbs=1: equal, as before" in again.stdout
    assert "fsdp=2: equal (" in again.stdout
