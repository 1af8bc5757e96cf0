"""The worker of `bench gemm`, run for real: on the CPU here, on a GPU where there is one."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.conftest import Run

from primus_bench.benchmarks.gemm import worker as gemm
from primus_bench.benchmarks.gemm.engines import Multiplication, engine
from primus_bench.benchmarks.gemm.problem import Problem
from primus_bench.measure.device import Device, probe
from primus_bench.measure.timing import GpuTimer
from primus_core.errors import MachineError, PrimusError

pytestmark = pytest.mark.torch

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA or ROCm device here")
QUICK = ("-M", "192", "--dtype", "fp32", "--device", "cpu", "--duration", "0.1")


def measured(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    """What the worker prints with --json, and nothing else on stdout."""
    assert gemm.main([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.full
def test_the_table_is_printed_and_says_what_was_measured(capsys: pytest.CaptureFixture[str]) -> None:
    assert gemm.main([*QUICK, "-N", "64", "-K", "96", "--trans-b"]) == 0
    shown = capsys.readouterr()
    assert "C = A·Bᵀ, M=192 N=64 K=96, fp32" in shown.out
    assert "│ torch" in shown.out
    alive = ("bench: drawing the operands", "bench: torch: ")
    assert all(line.startswith(alive) for line in shown.err.splitlines()), "no more than signs of life"


@pytest.mark.full
@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
def test_every_type_is_measured_on_a_cpu(capsys: pytest.CaptureFixture[str], dtype: str) -> None:
    words = ["-M", "64", "--dtype", dtype, "--trans-a", "--device", "cpu", "--duration", "0.05"]
    [case] = measured(capsys, *words)["cases"]
    figures, median_ms = case["derived"], case["median"] * 1000
    assert figures["iterations"] >= 3
    assert 0 < figures["p5_ms"] <= median_ms <= figures["p95_ms"] <= figures["max_ms"]
    assert case["value"] == pytest.approx(2 * 64**3 / median_ms / 1e9)
    assert figures["rows_checked"] == 64


@pytest.mark.full
def test_the_buffers_in_rotation_exceed_the_last_level_cache(capsys: pytest.CaptureFixture[str]) -> None:
    found = measured(capsys, *QUICK)
    [case] = found["cases"]
    assert case["derived"]["rotation_sets"] > 2
    assert case["derived"]["rotation_bytes"] > 16 * 2**20
    assert all("steady" in note or "peak" in note for note in found["notes"])


@pytest.mark.full
def test_results_are_written_where_they_were_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = [tmp_path / "new" / name for name in ("r.md", "r.csv", "r.json")]
    printed = measured(capsys, *QUICK, *(f"--output={name}" for name in names))
    assert json.loads(names[2].read_text(encoding="utf-8")) == printed
    assert names[0].read_text(encoding="utf-8").startswith("# GEMM")
    assert names[1].read_text(encoding="utf-8").startswith("engine,")


SMALL = (
    "models: {small: {source: [none], num_layers: 2, hidden_size: 64, ffn_hidden_size: 96, num_attention_heads: 4,"
    " num_kv_heads: 2, vocab_size: 128, max_position_embeddings: 64, rope_theta: 1e4, norm_eps: 1e-5,"
    " tie_embeddings: true, moe: {num_experts: 4, topk: 2, moe_ffn_hidden_size: 32, first_k_dense: 1}}}"
)


@pytest.mark.full
def test_the_shapes_of_a_models_step_are_measured_with_their_numbers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "small.yaml"
    path.write_text(SMALL)
    words = ("--dtype", "fp32", "--device", "cpu", "--duration", "0.02", "--model", str(path), "--seq-len", "48")
    chosen = ("--matrix", "qkv", "--matrix", "experts-down")
    found = measured(capsys, *words, *chosen)
    sizes = {case["parameters"]["shape"]: [case["parameters"][key] for key in ("m", "n", "k", "count", "groups", "split")]
             for case in found["cases"]}  # fmt: skip
    assert sizes == {
        "qkv/fwd": [48, 128, 64, 2, 1, "m"], "qkv/dgrad": [48, 64, 128, 2, 1, "m"],
        "qkv/wgrad": [128, 64, 48, 2, 1, "m"], "experts-down/fwd": [96, 64, 32, 1, 4, "m"],
        "experts-down/dgrad": [96, 32, 64, 1, 4, "m"], "experts-down/wgrad": [64, 32, 96, 1, 4, "k"],
    }  # fmt: skip
    methods = {case["parameters"]["shape"]: case["derived"]["method"] for case in found["cases"]}
    assert methods["qkv/wgrad"] == "torch.matmul"
    assert methods["experts-down/wgrad"] == "a loop of torch.matmul"
    for case in found["cases"]:
        assert case["value"] == pytest.approx(case["derived"]["flops"] / case["median"] / 1e12)
    assert found["parameters"]["title"].startswith(f"one training step of {path} on one rank, seq-len 48")


@pytest.mark.full
@pytest.mark.parametrize("ranks", [1, 2])
def test_every_device_of_the_node_is_measured(primus: Run, tmp_path: Path, ranks: int) -> None:
    (tmp_path / "shapes.csv").write_text("m,n,k,count,dtype,name\n48,32,16,3,fp32,up\n16,48,32,1,bf16,down\n")
    words = ("--shapes", "shapes.csv", "--device", "cpu", "--duration", "0.05", "--output", "r.md")
    done = primus("direct", "--", "bench", "gemm", *words, env={"GPUS_PER_NODE": str(ranks)}, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "output/bench-gemm/gemm.json").read_text())
    assert [case["name"] for case in found["cases"]] == ["torch/up", "torch/down"]
    for case in found["cases"]:
        speeds = case["derived"]["tflops_of_ranks"]
        assert len(speeds) == case["parameters"]["ranks"] == ranks
        assert case["value"] == min(speeds)
        assert speeds.index(case["value"]) == case["rank"]
    assert ("slowest" in done.stdout) == (ranks > 1)
    assert (tmp_path / "r.md").read_text().startswith("# GEMM")


def test_an_engine_that_is_not_installed_is_exit_3_with_what_to_install(primus: Run, tmp_path: Path) -> None:
    done = primus("direct", "--", "bench", "gemm", "-M", "8", "--engine", "hipblaslt", cwd=tmp_path)
    assert done.returncode == 3
    assert "hipblaslt-bench" in done.stderr
    assert "add the folder with hipblaslt-bench to PATH" in done.stderr


def spoiled(_: str, problem: Problem, device: Device) -> Multiplication:
    """An engine that is wrong in one element."""

    def run(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        torch.matmul(a, b, out=c)
        c[3, 5] += 100
        return c

    return Multiplication(run, "spoiled")


def test_a_wrong_result_is_exit_1_and_has_no_speed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(PrimusError, match="its speed is not reported") as caught:
        gemm.main(QUICK, spoiled)
    assert caught.value.exit_code == 1
    assert capsys.readouterr().out == ""


def always_the_first(_: str, problem: Problem, device: Device) -> Multiplication:
    """An engine that keeps the buffers of its second call, so that the caches are warm."""
    kept: list[torch.Tensor] = []

    def run(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        kept.append(c) if len(kept) < 2 else None
        torch.matmul(a, b, out=kept[-1])
        return c

    return Multiplication(run, "stale")


@pytest.mark.full
def test_where_one_kernel_for_all_groups_refuses_a_loop_multiplies_and_a_note_says_so(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def refuses(*_: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("strides should be multiple of 16 bytes")

    def build(name: str, problem: Problem, device: Device) -> Multiplication:
        return Multiplication(refuses, "torch._grouped_mm", writes=False, otherwise=engine(name, problem, device))

    assert gemm.main((*QUICK, "--groups", "3", "--json"), build) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["cases"][0]["derived"]["method"] == "a loop of torch.matmul"
    assert "torch._grouped_mm cannot multiply this (strides should be multiple of 16 bytes)" in str(found["notes"])


@pytest.mark.full
def test_an_engine_that_uses_stale_buffers_is_caught(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(PrimusError, match="wrong result") as caught:
        gemm.main(("-M", "1024", "--dtype", "fp32", "--device", "cpu", "--duration", "1"), always_the_first)
    assert "the caches were warm" in caught.value.why
    assert capsys.readouterr().out == ""


def test_a_library_without_a_kernel_is_exit_3_and_no_traceback() -> None:
    def refuses(*_: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("no kernel for this\nand more")

    with pytest.raises(MachineError, match="cannot multiply") as caught:
        gemm.main(QUICK, lambda *_: Multiplication(refuses, "torch.matmul"))
    assert caught.value.why == "no kernel for this"


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU that torch can use")
@pytest.mark.parametrize("words", [["--device", "cuda"], ["--engine", "triton"], ["--dtype", "fp8"]])
def test_without_a_gpu_what_needs_one_ends_before_any_work(words: list[str]) -> None:
    with pytest.raises(MachineError, match="torch finds no GPU"):
        gemm.main(["-M", "64", *words])


@needs_gpu
@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
def test_both_engines_are_measured_on_a_gpu(capsys: pytest.CaptureFixture[str], dtype: str) -> None:
    found = measured(capsys, "-M", "4096", "--dtype", dtype, "--engine", "all", "--duration", "0.5")
    assert [case["parameters"]["engine"] for case in found["cases"]] == ["torch", "triton"]
    for case in found["cases"]:
        assert case["derived"]["rotation_bytes"] > 512 * 2**20
        assert case["derived"]["percent_of_peak"] is None or 0 < case["derived"]["percent_of_peak"] <= 100


@needs_gpu
@pytest.mark.gpu
def test_the_triton_kernel_reaches_most_of_the_librarys_speed(capsys: pytest.CaptureFixture[str]) -> None:
    found = measured(capsys, "-M", "8192", "--engine", "all")
    library, ours = (case["value"] for case in found["cases"])
    assert ours >= 0.85 * library


@needs_gpu
@pytest.mark.gpu
def test_a_short_kernel_is_not_timed_with_the_hosts_launch_gap(capsys: pytest.CaptureFixture[str]) -> None:
    """A 256³ product takes a few microseconds; launching it from Python takes longer."""
    [case] = measured(capsys, "-M", "256", "--duration", "0.5")["cases"]
    assert case["median"] < 15e-6


@needs_gpu
@pytest.mark.gpu
def test_fp8_is_measured_where_the_gpu_has_it_and_refused_where_not(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("-M", "4096", "--dtype", "fp8", "--engine", "all", "--duration", "0.5")
    if probe("cuda").fp8:
        assert len(measured(capsys, *words)["cases"]) == 2
    else:
        with pytest.raises(MachineError, match="fp8"):
            gemm.main(words)


@needs_gpu
@pytest.mark.gpu
def test_the_median_is_that_of_tritons_own_benchmark_with_a_cold_cache(capsys: pytest.CaptureFixture[str]) -> None:
    from triton.testing import do_bench

    [case] = measured(capsys, "-M", "8192")["cases"]
    a, b = (torch.randn(8192, 8192, dtype=torch.bfloat16, device="cuda") for _ in range(2))
    c = torch.empty_like(a)
    theirs = do_bench(lambda: torch.matmul(a, b, out=c), warmup=1000, rep=2000, return_mode="median")
    assert case["median"] * 1000 == pytest.approx(theirs, rel=0.01)


@needs_gpu
@pytest.mark.gpu
def test_warm_buffers_are_faster_than_those_in_rotation(capsys: pytest.CaptureFixture[str]) -> None:
    """A thin product waits for memory: one that finds its operands in the cache does not."""
    [case] = measured(capsys, "-M", "16", "-N", "4096", "-K", "4096", "--duration", "1")["cases"]
    a, b = torch.randn(16, 4096, device="cuda").bfloat16(), torch.randn(4096, 4096, device="cuda").bfloat16()
    c, timer = torch.empty(16, 4096, dtype=torch.bfloat16, device="cuda"), GpuTimer()
    for _ in range(3):
        warm = timer.times(lambda _: lambda: torch.matmul(a, b, out=c), 0, 200)
    assert statistics.median(warm) < 0.8 * case["median"] * 1000
