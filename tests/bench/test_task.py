"""The task `bench`: what a command line means, decided before anything is started."""

from __future__ import annotations

import argparse
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from primus_bench import gemm_options
from primus_bench.gemm_problem import DTYPES
from primus_bench.task import BENCH
from primus_core.errors import RequestError
from primus_core.host import HostRoot
from primus_core.machine.facts import Facts, Gpu
from primus_core.plan.plan import Distributed, RunPlace
from primus_core.plugins.catalogue import Catalogue
from primus_core.plugins.contracts import TaskCall, TaskPlan
from primus_core.request.arguments import Parser, parse_segment

FILE_NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1)
A_GPU = Gpu("amd", "0000:05:00.0", 0x74A1)


def planned(*words: str, gpus: tuple[Gpu, ...] = ()) -> TaskPlan:
    """The plan of `bench <words>` on a machine with `gpus`."""
    parser = Parser(prog="primus direct -- bench")
    BENCH.add_arguments(parser)
    facts = Facts({}, "here", "/home/me", 0.0, sys.executable, 2, gpus, {}, HostRoot("/nowhere", {}))
    args = parse_segment(parser, words)
    return BENCH.plan(TaskCall(words, args, facts, Distributed(), _place, Catalogue.here(facts.host)))


def _place(workspace: str, exp_name: str) -> RunPlace:
    return RunPlace(f"{exp_name}_1", f"/home/me/{workspace}/{exp_name}_1", "")


def settings(plan: TaskPlan) -> gemm_options.Settings:
    """What the worker will make of the arguments that the plan gives it."""
    parser = argparse.ArgumentParser()
    gemm_options.declare(parser)
    return gemm_options.settle(parser.parse_args(plan.worker.args), gpu_here=True)


def test_the_worker_is_one_plain_process() -> None:
    """A benchmark of one device has no ranks."""
    plan = planned("gemm", "-M", "512")
    assert (plan.worker.module, plan.worker.launcher) == ("primus_bench.gemm", "single")
    assert BENCH.scope == "run"


def test_n_and_k_default_to_m() -> None:
    problem = settings(planned("gemm", "-M", "512")).problems[0]
    assert (problem.m, problem.n, problem.k, problem.dtype) == (512, 512, 512, "bf16")


def test_the_long_spelling_of_a_size_is_the_same() -> None:
    assert planned("gemm", "--M", "8", "--N", "9", "--K=10") == planned("gemm", "-M", "8", "-N9", "-K", "10")


def test_a_model_gives_a_problem_for_each_of_its_matrices_with_the_weights_as_they_are_stored() -> None:
    plan = planned("gemm", "-M", "8192", "--model", "llama3.1_8B", "--dtype", "fp16")
    found = {p.name: (p.m, p.n, p.k, p.trans_b, p.dtype) for p in settings(plan).problems}
    assert found == {
        "qkv": (8192, 4096 + 2 * 1024, 4096, True, "fp16"),
        "attention-out": (8192, 4096, 4096, True, "fp16"),
        "mlp-gate-up": (8192, 2 * 14336, 4096, True, "fp16"),
        "mlp-down": (8192, 4096, 14336, True, "fp16"),
        "head": (8192, 128256, 4096, True, "fp16"),
    }


def test_an_expert_gets_its_share_of_the_tokens_and_the_router_is_left_out() -> None:
    found = {p.name: p.m for p in settings(planned("gemm", "-M", "8192", "--model", "qwen3_30B_A3B")).problems}
    assert found == {"qkv": 8192, "attention-out": 8192, "experts-gate-up": 512, "experts-down": 512, "head": 8192}


def test_matrices_are_chosen_by_name() -> None:
    plan = planned("gemm", "-M", "64", "--model", "deepseek_v3", "--matrix", "kv-up", "--matrix", "router")
    assert [(p.name, p.n, p.k) for p in settings(plan).problems] == [("kv-up", 32768, 512), ("router", 256, 7168)]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--model", "llama3_1_8B"], "did you mean 'llama3.1_8B'?"),
        (["--model", "grok1", "--matrix", "expert-down"], "did you mean 'experts-down'?"),
        (["--model", "grok1", "-K", "64"], "leave out -N, -K"),
        (["--matrix", "qkv"], "add --model"),
    ],
)
def test_a_model_or_matrix_that_cannot_be_is_refused(words: list[str], said: str) -> None:
    with pytest.raises(RequestError) as caught:
        planned("gemm", "-M", "64", *words)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("words", "allowed"),
    [
        (["-M", "0"], "whole number from 1"),
        (["-M", "-5"], "whole number from 1"),
        (["-M", "1.5"], "whole number from 1"),
        (["-M", "9" * 5000], "whole number from 1"),
        (["-M", "8", "-N", "many"], "whole number from 1"),
        (["-M", "8", "--dtype", "zz"], "fp8"),
        (["-M", "8", "--engine", "hopeless"], "triton"),
        (["-M", "8", "--device", "tpu"], "cuda"),
        (["-M", "8", "--duration", "0"], "greater than 0"),
        (["-M", "8", "--duration", "nan"], "greater than 0"),
        (["-M", "8", "--duration", "inf"], "greater than 0"),
        (["-M", "8", "--seed", "-1"], "whole number from 0"),
        (["-M", "8", "--output", "result.txt"], ".md, .csv or .json"),
        (["-M", "8", "--output", ".json"], ".md, .csv or .json"),
        ([], "-M/--M"),
    ],
)
def test_a_bad_value_is_refused_and_the_allowed_ones_are_named(words: list[str], allowed: str) -> None:
    with pytest.raises(RequestError) as caught:
        planned("gemm", *words)
    assert allowed in str(caught.value)
    assert caught.value.exit_code == 2


def test_a_missing_or_unknown_benchmark_is_refused_and_the_known_ones_are_named() -> None:
    for words in ((), ("gem", "-M", "8")):
        with pytest.raises(RequestError, match="gemm"):
            planned(*words)


def test_a_misspelt_option_is_refused_with_a_suggestion() -> None:
    with pytest.raises(RequestError, match="did you mean '--trans-a'"):
        planned("gemm", "-M", "8", "--transa")


def test_an_option_is_not_guessed_from_its_beginning() -> None:
    with pytest.raises(RequestError, match="--dur"):
        planned("gemm", "-M", "8", "--dur", "3")


def test_a_machine_with_a_gpu_measures_it_and_one_without_measures_the_cpu() -> None:
    assert settings(planned("gemm", "-M", "8", gpus=(A_GPU,))).device == "cuda"
    assert settings(planned("gemm", "-M", "8")).device == "cpu"
    assert settings(planned("gemm", "-M", "8", "--device", "cpu", gpus=(A_GPU,))).device == "cpu"


@pytest.mark.parametrize("words", [["--engine", "triton"], ["--dtype", "fp8"]])
def test_what_only_a_gpu_can_do_is_refused_on_a_cpu(words: list[str]) -> None:
    with pytest.raises(RequestError, match=f"{words[0]} {words[1]} needs a GPU, but --device is cpu"):
        planned("gemm", "-M", "16", "--device", "cpu", *words, gpus=(A_GPU,))


@pytest.mark.parametrize("words", [["--engine", "triton"], ["--dtype", "fp8"], ["--device", "cuda"]])
def test_where_no_gpu_is_seen_the_plan_says_so_and_can_still_be_shown(words: list[str]) -> None:
    """A dry run on a login node plans for a node with GPUs."""
    plan = planned("gemm", "-M", "16", *words)
    assert settings(plan).device == "cuda"
    assert "no GPU was found on this machine" in plan.notes[0]


def test_all_engines_are_those_that_the_device_has() -> None:
    on_cpu = planned("gemm", "-M", "8", "--engine", "all")
    on_gpu = planned("gemm", "-M", "8", "--engine", "all", gpus=(A_GPU,))
    assert settings(on_cpu).engines == ("torch",)
    assert on_cpu.notes == ("triton is left out: it needs a GPU",)
    assert settings(on_gpu).engines == ("torch", "triton")
    assert on_gpu.notes == ()


def test_what_an_engine_needs_is_required_with_the_command_that_installs_it() -> None:
    def needs(engine: str) -> list[tuple[str, str]]:
        plan = planned("gemm", "-M", "8", "--engine", engine, gpus=(A_GPU,))
        return [(requirement.name, requirement.fix) for requirement in plan.requires]

    torch, triton = ("torch", "pip install 'primus-bench[torch]'"), ("triton", "pip install 'primus-bench[triton]'")
    assert needs("torch") == [torch]
    assert needs("triton") == needs("all") == [torch, triton]


def test_output_files_are_relative_to_where_the_person_stands() -> None:
    outputs = settings(planned("gemm", "-M", "8", "--output", "a/b.md", "--output", "/tmp/c.CSV")).outputs
    assert outputs[:2] == ("/home/me/a/b.md", "/tmp/c.CSV")


def test_the_run_directory_keeps_the_result() -> None:
    assert settings(planned("gemm", "-M", "8")).outputs == ("/home/me/output/bench-gemm_1/gemm.json",)


def test_fp8_stores_b_as_torch_needs_it_and_says_so() -> None:
    plan = planned("gemm", "-M", "64", "--dtype", "fp8", gpus=(A_GPU,))
    assert settings(plan).problems[0].trans_b
    assert "stored transposed" in plan.notes[0]
    assert settings(plan).notes == ()


@pytest.mark.parametrize("words", [["-N", "65"], ["-K", "65"], ["--trans-a"]])
def test_fp8_in_a_form_that_torch_does_not_multiply_is_refused(words: list[str]) -> None:
    with pytest.raises(RequestError, match="multiples of 16"):
        planned("gemm", "-M", "64", "--dtype", "fp8", *words, gpus=(A_GPU,))
    assert planned("gemm", "-M", "64", "--dtype", "fp8", "--engine", "triton", *words, gpus=(A_GPU,))


@pytest.mark.slow
@given(
    sizes=st.tuples(*[st.integers(1, 10**6)] * 3),
    dtype=st.sampled_from(DTYPES[:3]),
    transposed=st.tuples(st.booleans(), st.booleans()),
    duration=st.floats(1e-6, 1e6),
    seed=st.integers(0, 2**63 - 1),
    output=st.lists(FILE_NAMES.map(lambda name: f"/{name}x.md")),
)
def test_the_worker_reads_the_same_settings_that_were_planned(
    sizes: tuple[int, int, int], dtype: str, transposed: tuple[bool, bool], duration: float, seed: int,
    output: list[str],
) -> None:  # fmt: skip
    words = [f"-{name}={size}" for name, size in zip("MNK", sizes, strict=True)] + ["--dtype", dtype]
    words += ["--trans-a"] * transposed[0] + ["--trans-b"] * transposed[1]
    words += ["--duration", repr(duration), "--seed", str(seed), *(f"--output={path}" for path in output)]
    read = settings(planned("gemm", *words))
    assert (read.problems[0].m, read.problems[0].n, read.problems[0].k) == sizes
    assert (read.problems[0].dtype, read.problems[0].trans_a, read.problems[0].trans_b) == (dtype, *transposed)
    assert (read.duration_s, read.seed, read.outputs[:-1]) == (duration, seed, tuple(output))


def test_planning_imports_nothing_heavy() -> None:
    heavy = "{'torch', 'triton', 'numpy', 'tabulate', 'pydantic'}"
    code = f"import sys, primus_bench.task; print(*({heavy} & set(sys.modules)))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.split() == []
