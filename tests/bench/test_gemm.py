"""The worker of `bench gemm`, run for real: on the CPU here, on a GPU where there is one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from primus_bench import gemm
from primus_bench.device import probe
from primus_core.errors import MachineError

pytestmark = pytest.mark.torch

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA or ROCm device here")
QUICK = ("-M", "192", "--dtype", "fp32", "--device", "cpu", "--duration", "0.1")


def measured(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    """What the worker prints with --json, and nothing else on stdout."""
    assert gemm.main([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.slow
def test_the_table_is_printed_and_says_what_was_measured(capsys: pytest.CaptureFixture[str]) -> None:
    assert gemm.main([*QUICK, "-N", "64", "-K", "96", "--trans-b"]) == 0
    shown = capsys.readouterr()
    assert "C = A·Bᵀ, M=192 N=64 K=96, fp32" in shown.out
    assert "│ torch" in shown.out
    alive = ("bench: drawing the operands", "bench: torch: ")
    assert all(line.startswith(alive) for line in shown.err.splitlines()), "no more than signs of life"


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
def test_every_type_is_measured_on_a_cpu(capsys: pytest.CaptureFixture[str], dtype: str) -> None:
    words = ["-M", "64", "--dtype", dtype, "--trans-a", "--device", "cpu", "--duration", "0.05"]
    row = measured(capsys, *words)["results"][0]
    assert row["iterations"] >= 3
    assert 0 < row["p5_ms"] <= row["median_ms"] <= row["p95_ms"] <= row["max_ms"]
    assert row["tflops"] == pytest.approx(2 * 64**3 / row["median_ms"] / 1e9)
    assert row["rows_checked"] == 64


@pytest.mark.slow
def test_the_buffers_in_rotation_exceed_the_last_level_cache(capsys: pytest.CaptureFixture[str]) -> None:
    found = measured(capsys, *QUICK)
    [row] = found["results"]
    assert row["rotation_sets"] > 2
    assert row["rotation_bytes"] > 16 * 2**20
    assert found["notes"] == [] or "steady" in str(found["notes"])


@pytest.mark.slow
def test_results_are_written_where_they_were_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = [tmp_path / "new" / name for name in ("r.md", "r.csv", "r.json")]
    printed = measured(capsys, *QUICK, *(f"--output={name}" for name in names))
    assert json.loads(names[2].read_text(encoding="utf-8")) == printed
    assert names[0].read_text(encoding="utf-8").startswith("# GEMM")
    assert names[1].read_text(encoding="utf-8").startswith("engine,")


@pytest.mark.slow
def test_every_matrix_of_a_model_is_measured_with_all_its_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "small.yaml"
    path.write_text(
        "models: {small: {source: [none], num_layers: 2, hidden_size: 64, ffn_hidden_size: 96, num_attention_heads: 4,"
        " num_kv_heads: 2, vocab_size: 128, max_position_embeddings: 64, rope_theta: 1e4, norm_eps: 1e-5,"
        " tie_embeddings: true}}"
    )
    rows = measured(capsys, *QUICK, "--model", str(path))["results"]
    sizes = {row["matrix"]: (row["m"], row["n"], row["k"]) for row in rows}
    assert sizes == {"qkv": (192, 128, 64), "attention-out": (192, 64, 64), "mlp-gate-up": (192, 192, 64),
                     "mlp-down": (192, 64, 96), "head": (192, 128, 64)}  # fmt: skip
    for row in rows:
        assert row["tflops"] == pytest.approx(2 * row["m"] * row["n"] * row["k"] / row["median_ms"] / 1e9)
        assert row["rows_checked"] == 192


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
    rows = found["results"]
    assert [row["engine"] for row in rows] == ["torch", "triton"]
    for row in rows:
        assert row["rotation_bytes"] > 512 * 2**20
        assert row["percent_of_peak"] is None or 0 < row["percent_of_peak"] <= 100


@needs_gpu
@pytest.mark.gpu
def test_the_triton_kernel_reaches_half_of_the_librarys_speed(capsys: pytest.CaptureFixture[str]) -> None:
    """A kernel without matrix instructions or with a bad layout is far below that; noise is not."""
    found = measured(capsys, "-M", "8192", "--engine", "all")
    library, ours = (row["tflops"] for row in found["results"])
    assert ours > 0.5 * library


@needs_gpu
@pytest.mark.gpu
def test_a_short_kernel_is_not_timed_with_the_hosts_launch_gap(capsys: pytest.CaptureFixture[str]) -> None:
    """A 256³ product takes a few microseconds; launching it from Python takes longer."""
    row = measured(capsys, "-M", "256", "--duration", "0.5")["results"][0]
    assert row["median_ms"] < 0.015


@needs_gpu
@pytest.mark.gpu
def test_fp8_is_measured_where_the_gpu_has_it_and_refused_where_not(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("-M", "4096", "--dtype", "fp8", "--engine", "all", "--duration", "0.5")
    if probe("cuda").fp8:
        assert len(measured(capsys, *words)["results"]) == 2
    else:
        with pytest.raises(MachineError, match="fp8"):
            gemm.main(words)
