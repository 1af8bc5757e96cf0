"""`hipblaslt-bench`: what it prints, recorded from real calls of several releases, and a stand-in that prints it."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import pytest

from primus_bench.benchmarks.gemm import hipblaslt
from primus_bench.benchmarks.gemm.problem import Problem
from primus_core.errors import MachineError, PrimusError

NEW = """hipBLASLt version: 100200
hipBLASLt git version: de5c1aebb6-dirty
Query device success: there are 1 devices. (Target device ID is 0)
Device ID 0 : AMD Instinct MI350X gfx950:sramecc+:xnack-
with 270.6 GB memory, max. SCLK 2200 MHz, max. MCLK 1900 MHz, compute capability 9.5
maxGridDimX 2147483647, sharedMemPerBlock 163.8 KB, maxThreadsPerBlock 1024, warpSize 64

Rotating buffer 640 MiB. Needed Size: 19 MiB. Needed block count: 33 (Capped to max iters: 50)
Is supported 1 / Total solutions: 1
[0]:transA,transB,grouped_gemm,batch_count,m,n,k,alpha,lda,stride_a,beta,ldb,stride_b,ldc,stride_c,ldd,stride_d,a_type,b_type,c_type,d_type,compute_type,scaleA,scaleB,scaleC,scaleD,amaxD,swizzle_a,swizzle_b,activation_type,bias_vector,bias_type,aux_type,rotating_buffer,flush,use_gpu_timer,hipblaslt-Gflops,hipblaslt-GB/s,us
    N,T,0,1,3584,512,2048,1,3584,7340032,0,512,1048576,3584,1835008,3584,1835008,bf16_r,bf16_r,bf16_r,bf16_r,f32_r,0,0,0,0,0,0,0,none,0,bf16_r,bf16_r,640,1,1,323283,819.066,23.2496
    --Solution index: 300119
    --kernel name:    Cijk_Ailk_Bjlk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT128x64x128_MI32x32x1_SN
"""
FP8 = """hipBLASLt version: 100100
hipBLASLt git version: 319de70737
[0]:transA,transB,grouped_gemm,batch_count,m,n,k,alpha,lda,stride_a,beta,ldb,stride_b,ldc,stride_c,ldd,stride_d,a_type,b_type,c_type,d_type,compute_type,scaleA,scaleB,scaleC,scaleD,amaxD,activation_type,bias_vector,bias_type,aux_type,rotating_buffer,hipblaslt-Gflops,hipblaslt-GB/s,us
    T,N,0,1,4096,65536,14336,1,14336,58720256,0,14336,939524096,4096,268435456,4096,268435456,f8_r,f8_r,bf16_r,bf16_r,f32_r,1,1,0,0,0,none,0,f32_r,bf16_r,512,3.2733e+06,608.035,2351.32
"""
CHECKED = """Query device success: there are 1 devices
transA,transB,grouped_gemm,batch_count,M,N,K,alpha,lda,stride_a,beta,ldb,stride_b,ldc,stride_c,ldd,stride_d,d_type,compute_type,activation_type,bias_vector,hipblaslt-Gflops,us,CPU-Gflops,CPU-us,norm_error_1
N,N,0,1,128,128,128,1,128,16384,0,128,16384,128,16384,128,16384,f32_r,f32_r,none,0, 530.925, 7.9,4.092,1025,2.35641e-07
"""
WRONG = CHECKED.replace("2.35641e-07", "1.08487")
NO_KERNEL = NEW.replace("323283,819.066,23.2496", "inf,inf,0")


def test_the_columns_of_every_release_are_read_by_their_names() -> None:
    """ROCm/hipBLASLt#395 has the oldest form; those with `rotating_buffer` and `flush` are of 2025."""
    assert hipblaslt.parse(NEW) == hipblaslt.Printed(23.2496, None, "100200 de5c1aebb6-dirty")
    assert hipblaslt.parse(FP8) == hipblaslt.Printed(2351.32, None, "100100 319de70737")
    assert hipblaslt.parse(CHECKED) == hipblaslt.Printed(7.9, 2.35641e-07, "")


@pytest.mark.parametrize(
    "text",
    [
        "",
        NO_KERNEL,
        NEW.partition("    N,T")[0],
        NEW.replace("23.2496", "nan"),
        NEW.replace("23.2496", "23.2496,7"),
        "\x1b[2Jno",
    ],
)
def test_what_is_no_result_is_an_error_without_control_characters(text: str) -> None:
    with pytest.raises(PrimusError, match="printed no result") as caught:
        hipblaslt.parse(text)
    assert "\x1b" not in str(caught.value)


def test_the_operands_change_places_because_its_matrices_are_column_major() -> None:
    """C = A·Bᵀ, with B stored as N x K, is Cᵀ = B·Aᵀ of column-major matrices: what BLAS calls TN."""
    words = hipblaslt.command(Problem(10, 20, 30, "bf16", trans_b=True), None, 3, 50)
    given = dict(zip(words[1::2], words[2::2], strict=False))
    expected = {"-m": "20", "-n": "10", "-k": "30", "--transA": "T", "--transB": "N", "--lda": "30", "--ldb": "30",
                "--ldc": "20", "--ldd": "20", "--a_type": "bf16_r", "-i": "50", "--device": "3"}  # fmt: skip
    assert given.items() >= expected.items()
    words = hipblaslt.command(Problem(10, 20, 30, "fp16", trans_a=True), None, 0, 1, check=True)
    given = dict(zip(words[1::2], words[2::2], strict=False))
    assert (
        given.items() >= {"--transA": "N", "--transB": "T", "--lda": "20", "--ldb": "10", "--d_type": "f16_r"}.items()
    )
    assert words[-1] == "--verify"


@pytest.mark.parametrize(("fp8", "kind"), [("float8_e4m3fnuz", "f8_fnuz_r"), ("float8_e4m3fn", "f8_r")])
def test_fp8_is_of_the_kind_that_the_architecture_multiplies(fp8: str, kind: str) -> None:
    words = hipblaslt.command(Problem(16, 16, 16, "fp8", trans_b=True), fp8, 0, 1)
    given = dict(zip(words[1::2], words[2::2], strict=False))
    assert (given["--a_type"], given["--b_type"], given["--c_type"], given["--d_type"]) == (
        kind,
        kind,
        "bf16_r",
        "bf16_r",
    )


def stand_in(folder: Path, text: str, code: int = 0) -> dict[str, str]:
    """The environment with a stand-in for `hipblaslt-bench`, which prints `text`: there is no AMD GPU here."""
    path = folder / "hipblaslt-bench"
    path.write_text(f"#!{sys.executable}\nimport sys\nprint({text!r})\nopen({str(folder / 'calls')!r}, 'a').write("
                    f"' '.join(sys.argv[1:]) + chr(10))\nsys.exit({code})\n")  # fmt: skip
    path.chmod(0o755)
    return {"PATH": str(folder)}


def test_each_sample_is_the_mean_of_a_call_that_lasts_its_share(tmp_path: Path) -> None:
    environ = stand_in(tmp_path, NEW)
    samples, version = hipblaslt.measure(Problem(64, 64, 64), None, 1, 1.0, environ)
    assert samples == pytest.approx([0.0232496] * 5)
    assert version.startswith("100200")
    calls = (tmp_path / "calls").read_text().splitlines()
    assert [f" -i {count} " in call for call, count in zip(calls, (10, *[int(2e5 / 23.2496)] * 5), strict=True)] == [
        True
    ] * 6


def test_its_own_check_decides_and_large_products_are_checked_in_part(tmp_path: Path) -> None:
    assert hipblaslt.wrong(Problem(128, 128, 128, "fp32"), None, 0, stand_in(tmp_path, CHECKED))[:2] == ("", 128)
    trouble, rows, error = hipblaslt.wrong(Problem(2**15, 2**15, 2**15), None, 0, stand_in(tmp_path, WRONG))
    assert "norm_error 1.08" in trouble
    assert (rows, error) == (int(5e11 / 2**31), 1.08487)
    nothing = hipblaslt.wrong(Problem(8, 8, 8), None, 0, stand_in(tmp_path, NEW))
    assert nothing[0] == "hipblaslt-bench printed no norm_error"
    nan = hipblaslt.wrong(Problem(8, 8, 8), None, 0, stand_in(tmp_path, CHECKED.replace("2.35641e-07", "nan")))
    assert nan[0]
    assert math.isnan(nan[2])


@pytest.mark.torch
def test_the_worker_reports_its_means_and_its_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from primus_bench.benchmarks.gemm.engines import engine
    from primus_bench.benchmarks.gemm.options import Settings
    from primus_bench.benchmarks.gemm.worker import _Worker
    from primus_bench.measure.device import Device
    from primus_bench.measure.ranks import join

    problem, here = Problem(64, 64, 64, "fp32"), join({})
    gpu = Device("cuda", "a stand-in", "gfx942", 304, 2**29, 2**36)
    settings = Settings((problem,), ("hipblaslt",), "cuda", 0.1, 0, (), False, "")
    worker = _Worker(settings, gpu, here, lambda _: None, engine)
    monkeypatch.setenv(
        "PATH", stand_in(tmp_path, NEW.replace("/s,us", "/s,us,norm_error").replace("23.2496", "23.2496,1e-7"))["PATH"]
    )
    worker.measure(problem, ("hipblaslt",))
    [result] = worker.results
    assert result.method == "hipblaslt-bench"
    assert result.found.medians_ms == pytest.approx([0.0232496])
    assert worker.versions["hipblaslt"] == "100200 de5c1aebb6-dirty"


def test_one_that_fails_or_is_missing_says_so(tmp_path: Path) -> None:
    with pytest.raises(PrimusError, match="printed no result") as caught:
        hipblaslt.measure(Problem(8, 8, 8), None, 0, 0.1, stand_in(tmp_path, NEW, 7))
    assert "exit code 7" in caught.value.why
    with pytest.raises(MachineError, match="not on PATH"):
        hipblaslt.measure(Problem(8, 8, 8), None, 0, 0.1, {"PATH": str(tmp_path / "none")})
