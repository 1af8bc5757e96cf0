"""The task `bench`: what a command line means, decided before anything is started."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import Run

from primus_bench.benchmarks.gemm import options as gemm_options
from primus_bench.benchmarks.gemm.problem import DTYPES
from primus_bench.task import BENCH
from primus_core.cli.main import main
from primus_core.errors import RequestError
from primus_core.plan.plan import Distributed, RunPlace
from primus_core.plugins.catalogue import Catalogue
from primus_core.plugins.contracts import TaskCall, TaskPlan
from primus_core.request.arguments import Parser, parse_segment
from primus_machine.facts import Facts, Gpu
from primus_machine.host import HostRoot

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
    return RunPlace(f"{exp_name}_1", f"/home/me/{workspace or 'output'}/{exp_name}_1", "")


def settings(plan: TaskPlan) -> gemm_options.Settings:
    """What the worker will make of the arguments that the plan gives it."""
    parser = argparse.ArgumentParser()
    gemm_options.declare(parser)
    return gemm_options.settle(parser.parse_args(plan.worker.args), gpu_here=True)


@pytest.mark.parametrize("name", ["attention", "comm", "gemm", "io", "memory", "suite", "train"])
def test_each_device_has_a_worker(name: str) -> None:
    needed = {"gemm": ("-M", "512"), "train": ("--model", "llama3.1_8B")}
    plan = planned(name, *needed.get(name, ()))
    assert (plan.worker.module, plan.worker.launcher) == (f"primus_bench.benchmarks.{name}.worker", "torchrun")
    assert plan.worker.args[-2:] == ("--output", f"/home/me/output/bench-{name}_1/{name}.json")
    assert BENCH.scope == "run"


def test_n_and_k_default_to_m() -> None:
    problem = settings(planned("gemm", "-M", "512")).problems[0]
    assert (problem.m, problem.n, problem.k, problem.dtype) == (512, 512, 512, "bf16")


def test_the_long_spelling_of_a_size_is_the_same() -> None:
    assert planned("gemm", "--M", "8", "--N", "9", "--K=10") == planned("gemm", "-M", "8", "-N9", "-K", "10")


def test_sweeps_and_lists_are_measured_in_every_combination() -> None:
    found = settings(planned("gemm", "-M", "1024:4096:x2", "-N", "64,96", "-K", "32")).problems
    assert [(p.m, p.n, p.k) for p in found] == [(m, n, 32) for m in (1024, 2048, 4096) for n in (64, 96)]
    squares = settings(planned("gemm", "-M", "1024:4096:+1024")).problems
    assert [(p.m, p.n, p.k) for p in squares] == [(m, m, m) for m in (1024, 2048, 3072, 4096)]


def test_groups_share_the_rows() -> None:
    [problem] = settings(planned("gemm", "-M", "10", "-N", "4", "-K", "2", "--groups", "3")).problems
    assert problem.group_sizes == (4, 3, 3)
    assert problem.flops == 2 * 10 * 4 * 2
    assert problem.bytes_moved == 2 * (10 * 2 + 3 * 2 * 4 + 10 * 4)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--model", "llama3_1_8B"], "did you mean 'llama3.1_8B'?"),
        (["--model", "grok1", "--matrix", "expert-down"], "did you mean 'experts-down'?"),
        (
            ["--model", "grok1", "-M", "64", "--trans-a"],
            "remove -M, --trans-a, or remove --model; the number of tokens",
        ),
        (["--model", "grok1", "--shapes", "x.csv"], "--model and --shapes both define the shapes"),
        (["-M", "64", "--matrix", "qkv"], "add --model"),
        (["-M", "64", "128"], "unknown word '128'"),
        (["--shapes", "x.csv", "-K", "64"], "remove -K, or remove --shapes"),
        (["--model", "llama3.1_8B", "--tp", "3"], "known: 1, 2, 4, 8"),
        (["--model", "llama3.1_8B", "--ep", "2"], "the model is dense"),
        (["--model", "mixtral_8x7B", "--ep", "3"], "known: 1, 2, 4, 8"),
        (["--model", "deepseek_v3", "--seq-len", "16"], "not every one of 256 experts gets a token"),
        (["-M", "8", "--groups", "9"], "choose at most M groups"),
        (["-M", "1:200:+1", "-N", "1:4:+1"], "800 shapes together"),
        (["-M", "64", "--groups", "2", "--engine", "hipblaslt"], "measures no grouped GEMM"),
    ],
)
def test_a_model_or_shape_that_cannot_be_is_refused(words: list[str], said: str) -> None:
    with pytest.raises(RequestError) as caught:
        planned("gemm", *words)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("words", "allowed"),
    [
        (["-M", "0"], "whole number from 1"),
        (["-M", "8x"], "several are a list (A,B) or a range: 1024:16384:x2"),
        (["-M", "-5"], "whole number from 1"),
        (["-M", "1.5"], "whole number from 1"),
        (["-M", "9" * 5000], "whole number from 1"),
        (["-M", "8", "-N", "many"], "whole number from 1"),
        (["-M", "8KiB"], "whole number from 1"),
        (["-M", "8:4:x2"], "must rise"),
        (["-M", "8:64:4"], "1024:16384:x2 (doubled)"),
        (["-M", "1:1000:+1"], "at most 200"),
        (["-M", "8", "--dtype", "zz"], "fp8"),
        (["-M", "8", "--engine", "hopeless"], "triton"),
        (["-M", "8", "--device", "tpu"], "cuda"),
        (["-M", "8", "--duration", "0"], "greater than 0"),
        (["-M", "8", "--duration", "nan"], "greater than 0"),
        (["-M", "8", "--duration", "inf"], "greater than 0"),
        (["-M", "8", "--seed", "-1"], "whole number from 0"),
        (["-M", "8", "--output", "result.txt"], ".md, .csv, .json or .html"),
        (["-M", "8", "--output", ".json"], ".md, .csv, .json or .html"),
        ([], "required: -M"),
    ],
)
def test_a_bad_value_is_refused_and_the_allowed_ones_are_named(words: list[str], allowed: str) -> None:
    with pytest.raises(RequestError) as caught:
        planned("gemm", *words)
    assert allowed in str(caught.value)
    assert caught.value.exit_code == 2


def test_all_mistakes_are_shown_at_once() -> None:
    with pytest.raises(RequestError) as caught:
        planned("gemm", "-M", "8KiB", "--dtype", "bf61", "--engine", "tritn", "--device", "tpu")
    assert [line for line in str(caught.value).splitlines() if "did you mean" in line] == [
        "  fix: did you mean 'bf16'?", "  fix: did you mean 'triton'?", "  fix: did you mean 'cpu'?"
    ]  # fmt: skip
    assert "'8KiB' is not" in str(caught.value)
    with pytest.raises(RequestError) as caught:
        planned(
            "gemm", "--model", "llama3.1_8B", "--tp", "3", "--matrix", "qvk", "--engine", "triton", "--device", "cpu"
        )
    assert {"did you mean 'qkv'?", "--tp 3 cannot divide", "needs a GPU"} <= {
        word for word in ("did you mean 'qkv'?", "--tp 3 cannot divide", "needs a GPU") if word in str(caught.value)
    }


def test_a_missing_or_unknown_benchmark_is_refused_and_the_known_ones_are_named() -> None:
    for words in ((), ("gem", "-M", "8")):
        with pytest.raises(RequestError, match="gemm"):
            planned(*words)


def test_a_misspelt_benchmark_is_refused_with_a_suggestion() -> None:
    with pytest.raises(RequestError, match="did you mean 'gemm'") as caught:
        planned("gemn", "-M", "8")
    assert caught.value.exit_code == 2


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


@pytest.mark.parametrize(
    "words",
    [
        ("gemm", "-M", "16", "--engine", "triton"),
        ("gemm", "-M", "16", "--dtype", "fp8"),
        *[
            (name, *more, "--device", "cuda")
            for name, *more in (("gemm", "-M", "16"), ("attention",), ("memory",), ("suite",))
        ],
    ],
)
def test_where_no_gpu_is_seen_the_plan_says_so_and_only_a_start_is_refused(words: tuple[str, ...]) -> None:
    """A dry run on a login node plans for a node with GPUs."""
    plan = planned(*words)
    assert plan.worker.args[plan.worker.args.index("--device") + 1] == "cuda"
    assert "no GPU was found on this machine" in plan.notes[0]
    assert [one.fix for one in plan.requires if one.kind == "gpu"]
    assert not [one for one in planned(*words, gpus=(A_GPU,)).requires if one.kind == "gpu"]


def test_what_has_nothing_on_a_cpu_is_not_advised_to_measure_there() -> None:
    for words in (("gemm", "-M", "16", "--dtype", "fp8"), ("gemm", "-M", "16", "--engine", "triton")):
        [fix] = [one.fix for one in planned(*words).requires if one.kind == "gpu"]
        assert fix.startswith("on a CPU, use --engine torch with --dtype bf16")


def test_a_run_that_needs_a_gpu_is_refused_before_it_starts(primus: Run, tmp_path: Path) -> None:
    if any(Path(path).exists() for path in ("/dev/kfd", "/dev/nvidiactl", "/dev/dxg")):
        pytest.skip("this machine may have a GPU")
    done = primus("direct", "--", "bench", "memory", "--device", "cuda", cwd=tmp_path)
    assert (done.returncode, "no GPU was found on this machine" in done.stderr) == (3, True), done.stderr
    assert "--device cpu" in done.stderr
    assert not list(tmp_path.iterdir())


def test_all_engines_are_those_that_the_device_has() -> None:
    on_cpu = planned("gemm", "-M", "8", "--engine", "all")
    on_gpu = planned("gemm", "-M", "8", "--engine", "all", gpus=(A_GPU,))
    assert settings(on_cpu).engines == ("torch",)
    assert on_cpu.notes == ("the engines triton and hipblaslt are skipped: they need a GPU",)
    assert settings(on_gpu).engines == ("torch", "triton")
    assert on_gpu.notes == ("the engine hipblaslt is skipped: hipblaslt-bench is not on PATH",)


def test_what_an_engine_needs_is_required_with_the_command_that_installs_it() -> None:
    def needs(engine: str) -> list[tuple[str, str]]:
        plan = planned("gemm", "-M", "8", "--engine", engine, gpus=(A_GPU,))
        return [(requirement.name, requirement.fix) for requirement in plan.requires]

    torch, triton = ("torch", "pip install 'primus-bench[torch]'"), ("triton", "pip install 'primus-bench[triton]'")
    assert needs("torch") == [torch]
    assert needs("triton") == needs("all") == [torch, triton]
    assert [name for name, _ in needs("hipblaslt")] == ["torch", "hipblaslt-bench"]
    assert "add the folder with hipblaslt-bench to PATH" in needs("hipblaslt")[1][1]


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


@pytest.mark.full
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


def test_only_the_benchmark_that_is_asked_for_is_imported() -> None:
    code = """
import sys
from primus_bench.task import BENCH
from primus_core.request.arguments import Parser
parser = Parser(prog="bench")
BENCH.add_arguments(parser)
whole = parser.format_help()
assert "Measure the speed of matrix multiplication." in whole, whole
print(*sorted(name for name in sys.modules if name.startswith("primus_bench.benchmarks.")))
assert "--trans-a" in parser.below(["gemm"]).format_help()
"""
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.split() == []


def test_a_separator_between_the_task_and_its_words_is_one_too_many(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["direct", "--", "bench", "--", "gemm", "-M", "64"]) == 2
    assert "fix: primus direct -- bench gemm -M 64\n" in capsys.readouterr().err
