"""`PRIMUS_HIPBLASLT_TUNING_STAGE`: what each stage plans on the captured form of a machine with AMD GPUs."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from tests.bench.test_tuning import Bench, line, worker
from tests.conftest import ROOT
from tests.machine import machines

from primus_bench.tuning.stages import STAGE, STAGES, SWITCH
from primus_core.cli.main import main
from primus_core.errors import RequestError
from primus_train.modes import Training

pytestmark = pytest.mark.torch
EXPERIMENT = ("train", "pretrain", "--config", str(ROOT / "examples/quickstart.yaml"))


def tree(folder: Path, gpu: str, rocm: str = "7.0.2-83") -> str:
    """A machine with eight of these GPUs, as `--assume-host` takes it."""
    machines.write(folder / gpu, machines.base(), machines.amd(gpu), {"opt/rocm/.info/version": rocm})
    return str(folder / gpu)


class Stage:
    """Plans trainings on such machines, in a folder of its own."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch, said: pytest.CaptureFixture[str]) -> None:
        self.folder, self.patch, self.said = folder, patch, said
        self.root = folder / "output/tune_hipblaslt/quickstart"
        patch.chdir(folder)
        for name in [name for name in os.environ if name.startswith(("PRIMUS_", "HIPBLASLT_", "TE_"))]:
            patch.delenv(name)

    def run(self, environ: dict[str, str], *where: str, gpu: str = "MI300X") -> tuple[int, str, str]:
        with self.patch.context() as patch:
            for name, value in environ.items():
                patch.setenv(name, value)
            words = ("--dry-run", "--json", "--assume-host", tree(self.folder, gpu), *where)
            code = main(["direct", *words, "--", *EXPERIMENT])
        done = self.said.readouterr()
        return code, done.out, done.err

    def plan(self, stage: str, **environ: str) -> dict[str, Any]:
        code, out, err = self.run({STAGE: stage, **environ})
        assert code == 0, err
        plan: dict[str, Any] = json.loads(out)
        return plan

    def refusal(self, stage: str, *, gpu: str = "MI300X", **environ: str) -> tuple[int, str]:
        code, _, err = self.run({STAGE: stage, **environ}, gpu=gpu)
        return code, err


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Stage:
    return Stage(tmp_path, monkeypatch, capsys)


def variables(plan: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """Value and origin of what the stages may set."""
    return {v["name"]: (v["value"], v["origin"]) for v in plan["environment"] if "HIPBLASLT" in v["name"]}


def needs(plan: dict[str, Any]) -> dict[str, str]:
    return {
        one["kind"]: one["name"]
        for one in plan["requires"]
        if "tune_hipblaslt" in one["name"] or one["kind"] == "command"
    }


def test_stage_1_writes_the_shapes_of_each_process_to_a_file_of_its_own(stage: Stage) -> None:
    plan = stage.plan("1")
    origin = "hipBLASLt tuning, stage 1"
    assert variables(plan) == {
        "HIPBLASLT_LOG_MASK": ("32", origin),
        "HIPBLASLT_LOG_FILE": (f"{stage.root}/gemm_shape/dump_hipblaslt_gemm_shape_0_%i.txt", origin),
    }
    assert all(v["why"] and v["source"] for v in plan["environment"] if v["origin"] == origin)
    assert plan["steps"][0]["argv"] == ["mkdir", "-p", f"{stage.root}/gemm_shape"]
    assert plan["worker"]["module"] == "primus_torchtitan.worker"


@pytest.mark.full
def test_stage_2_tunes_on_all_gpus_and_starts_no_training(stage: Stage, clean_environ: dict[str, str]) -> None:
    plan = stage.plan("2")
    assert variables(plan) == {}
    assert plan["worker"]["module"] == "primus_bench.tuning.worker"
    assert [step["name"] for step in plan["steps"]] == ["worker"]
    assert needs(plan)["command"] == "hipblaslt-bench"
    assert needs(plan)["file"] == f"{stage.root}/gemm_shape"
    words = plan["worker"]["args"]
    assert words[words.index("--gpus") + 1] == "8"

    bench = Bench(stage.folder / "stand-in", clean_environ)
    (stage.root / "gemm_shape").mkdir(parents=True)
    (stage.root / "gemm_shape/dump_hipblaslt_gemm_shape_0_17.txt").write_text(f"{line(1024)}\n{line(2048)}\n")
    code, said = worker(bench, *words)
    assert (code, "2 shapes, 0 of them finished before; 8 GPUs" in said) == (0, True), said

    tuned = f"{stage.root}/gemm_tune/tune_hipblas_gemm_results.txt"
    plan = stage.plan("3")
    assert variables(plan) == {"HIPBLASLT_TUNING_OVERRIDE_FILE": (tuned, "hipBLASLt tuning, stage 3")}
    assert needs(plan)["file"] == tuned
    assert plan["worker"]["module"] == "primus_torchtitan.worker"
    code, said = stage.refusal("3", gpu="MI355X")
    assert code == 3
    assert "is for GPU architecture gfx942, and here it is gfx950" in said
    assert "PRIMUS_HIPBLASLT_TUNING_STAGE=2" in said


def test_a_person_may_name_the_tuning_file_of_stage_3(stage: Stage) -> None:
    plan = stage.plan("3", HIPBLASLT_TUNING_OVERRIDE_FILE="mine.txt")
    assert variables(plan)["HIPBLASLT_TUNING_OVERRIDE_FILE"] == ("mine.txt", "user")
    assert f"{stage.folder}/mine.txt" in [one["name"] for one in plan["requires"] if one["kind"] == "file"]


def test_no_variable_is_ever_set_to_nothing() -> None:
    for number in "0123":
        for variable in STAGES.environment(Training("megatron", "llama3.1_8B", "/w", {STAGE: number})):
            assert variable.value
            assert variable.why
            assert variable.source.startswith("https://")


def test_stage_0_lets_transformer_engine_tune_unless_runs_must_be_equal() -> None:
    for environ in ({STAGE: "0"}, {SWITCH: "1"}, {SWITCH: "1", STAGE: "0"}):
        found = {v.name: v.value for v in STAGES.environment(Training("megatron", "m", "/w", environ))}
        assert found == {"TE_HIPBLASLT_TUNING_RUN_COUNT": "10", "TE_HIPBLASLT_TUNING_ALGO_COUNT": "50"}
    equal = Training("megatron", "m", "/w", {STAGE: "0", "PRIMUS_DETERMINISTIC": "1"})
    assert {v.value for v in STAGES.environment(equal)} == {"0"}
    assert STAGES.environment(Training("megatron", "m", "/w", {SWITCH: "0", STAGE: "1"})) == ()


def test_the_folder_is_named_by_the_model_or_as_the_person_says() -> None:
    def log(model: str, **environ: str) -> str:
        found = STAGES.environment(Training("torchtitan", model, "/w", {STAGE: "1", **environ}, node_rank=3))
        return (
            found[-1]
            .value.removeprefix("/w/tune_hipblaslt/")
            .removesuffix("/gemm_shape/dump_hipblaslt_gemm_shape_3_%i.txt")
        )

    assert log("llama3.1_8B") == "llama3.1_8B"
    assert log("llama3.1_8B", PRIMUS_MODEL="llama2_7B-pretrain") == "llama2_7B-pretrain"
    assert log("../a model/of mine") == "__a_model_of_mine"
    assert log("") == "model"


@pytest.mark.parametrize(
    ("environ", "told"),
    [
        (
            {STAGE: "5"},
            "known: 0 (Transformer Engine tunes), 1 (write the shapes), 2 (tune), 3 (train with the result)",
        ),
        ({STAGE: "one"}, f"{STAGE} is 'one'"),
        ({STAGE: "1", SWITCH: "yes"}, "known: 0 (off), 1 (on)"),
        ({STAGE: "1", "HIPBLASLT_TUNING_OVERRIDE_FILE": ""}, "unset HIPBLASLT_TUNING_OVERRIDE_FILE"),
        ({STAGE: "1", "HIPBLASLT_LOG_LEVEL": "2"}, "unset HIPBLASLT_LOG_LEVEL"),
        ({STAGE: "1", "HIPBLASLT_LOG_MASK": "16"}, "its bit 32 writes the shapes"),
        ({STAGE: "1", "TE_HIPBLASLT_TUNING_RUN_COUNT": "10"}, "unset TE_HIPBLASLT_TUNING_RUN_COUNT"),
        ({STAGE: "3", "HIPBLASLT_TUNING_MODE": "cache"}, "unset HIPBLASLT_TUNING_MODE"),
        ({STAGE: "3", "HIPBLASLT_TUNING_OVERRIDE_FILE": ""}, "it is empty, and names no tuning file"),
        ({STAGE: "2", "PRIMUS_DETERMINISTIC": "1"}, "contradicts PRIMUS_DETERMINISTIC=1"),
    ],
)
def test_wrong_and_contradicting_values_are_refused_with_what_is_known(environ: dict[str, str], told: str) -> None:
    with pytest.raises(RequestError) as caught:
        STAGES.environment(Training("megatron", "m", "/w", environ))
    assert told in str(caught.value)


def test_a_framework_without_these_calls_is_refused() -> None:
    with pytest.raises(RequestError, match="maxtext has no hipBLASLt tuning in stages"):
        STAGES.environment(Training("maxtext", "m", "/w", {STAGE: "1"}))


def test_what_logs_more_than_shapes_may_stay() -> None:
    found = STAGES.environment(Training("megatron", "m", "/w", {STAGE: "1", "HIPBLASLT_LOG_MASK": "33"}))
    assert found[0].name == "HIPBLASLT_LOG_MASK"


def test_several_nodes_or_no_amd_gpu_are_refused(stage: Stage) -> None:
    code, said = stage.refusal("2", NNODES="2", MASTER_ADDR="node0")
    assert code == 2
    assert f"{STAGE}=2 runs on one node, not on 2" in said
    machines.write(stage.folder / "none", machines.base())
    stage.said.readouterr()
    with stage.patch.context() as patch:
        patch.setenv(STAGE, "1")
        code = main(["direct", "--dry-run", "--assume-host", str(stage.folder / "none"), "--", *EXPERIMENT])
    assert code == 3
    assert f"{STAGE} needs an AMD GPU" in stage.said.readouterr().err


def test_an_option_that_comes_too_late_is_refused(stage: Stage) -> None:
    code, _, err = stage.run({}, "--env", f"{STAGE}=1")
    assert code == 2
    assert f"export {STAGE}" in err


def test_env_explain_shows_what_a_stage_sets_and_why(stage: Stage) -> None:
    with stage.patch.context() as patch:
        patch.setenv(STAGE, "1")
        names = ("HIPBLASLT_LOG_FILE", "HIPBLASLT_LOG_MASK")
        assert main(["env", "explain", "--config", EXPERIMENT[-1], "--json", *names]) == 0
    rows = json.loads(stage.said.readouterr().out)["variables"]
    assert [row["name"] for row in rows] == list(names)
    assert rows[0]["value"] == f"{stage.root}/gemm_shape/dump_hipblaslt_gemm_shape_0_%i.txt"
    assert {row["origin"] for row in rows} == {"hipBLASLt tuning, stage 1"}
