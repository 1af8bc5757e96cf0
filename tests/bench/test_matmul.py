"""Our Triton kernel: right in every type and layout, and compilable for the GPUs that it is written for."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("triton", reason="Triton is not installed")

from primus_bench.benchmarks.gemm import matmul, tiles
from primus_bench.benchmarks.gemm.accuracy import check
from primus_bench.benchmarks.gemm.matmul import multiply
from primus_bench.benchmarks.gemm.operands import Rotation
from primus_bench.benchmarks.gemm.problem import Problem
from primus_bench.measure.device import probe

pytestmark = pytest.mark.torch

Case = tuple[Any, ...]

HERE = Path(__file__).parent
TARGETS = {
    "sm_90": {"backend": "cuda", "arch": 90, "warp": 32, "chiplets": 1},
    "gfx942": {"backend": "hip", "arch": "gfx942", "warp": 64, "chiplets": 8},
    "gfx950": {"backend": "hip", "arch": "gfx950", "warp": 64, "chiplets": 8},
}


def in_a_process(script: str, cases: list[dict[str, Any]], **environment: str) -> list[dict[str, Any]]:
    """What a script beside this file prints for `cases`."""
    done = subprocess.run(
        [sys.executable, str(HERE / script), json.dumps(cases)],
        capture_output=True, text=True, check=False, env={**os.environ, **environment},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


# Whole tiles, ragged in each direction, a single element, more groups than one.
SHAPES = ((64, 96, 32), (33, 70, 50), (1, 1, 1), (200, 40, 129))
TYPES_LAYOUTS_SHAPES = (("bf16", "fp16", "fp32"), (False, True), (False, True), SHAPES)
CHIPLETS = (1, 2, 3, 4)


def pairs(case: Case) -> set[tuple[Any, ...]]:
    """Each two parameters of a case, with their values."""
    return set(itertools.combinations(enumerate(case), 2))


def pairwise(*parameters: tuple[object, ...]) -> list[Case]:
    """Few cases, in which every value of a parameter meets every value of every other one."""
    cases = list(itertools.product(*parameters))
    missing = {pair for case in cases for pair in pairs(case)}
    chosen = []
    while missing:
        chosen.append(max(cases, key=lambda case: len(missing & pairs(case))))
        missing -= pairs(chosen[-1])
    return chosen


def is_right(cases: list[Case]) -> None:
    """Fail where a result is wrong, in Triton's interpreter."""
    names = ("dtype", "trans_a", "trans_b", "shape", "chiplets")
    given = [dict(zip(names, case, strict=True)) for case in cases]
    for case in given:
        case["m"], case["n"], case["k"] = case.pop("shape")
    found = in_a_process("interpreted.py", given, TRITON_INTERPRET="1")
    assert len(found) == len(cases)
    assert all(accuracy["of_tolerance"] < 1 for accuracy in found)


@pytest.mark.full
def test_the_result_is_right_in_each_pair_of_type_layout_shape_and_chiplets() -> None:
    parameters = (*TYPES_LAYOUTS_SHAPES, CHIPLETS)
    cases = pairwise(*parameters)
    for (i, one), (j, other) in itertools.combinations(enumerate(parameters), 2):
        assert {(case[i], case[j]) for case in cases} == set(itertools.product(one, other))
    is_right(cases)


@pytest.mark.full
def test_the_result_is_right_in_every_type_layout_and_shape_whatever_the_chiplets() -> None:
    is_right([(dtype, a, b, shape, 1 + (shape[0] + a + b) % 4)
              for dtype, a, b, shape in itertools.product(*TYPES_LAYOUTS_SHAPES)])  # fmt: skip


@pytest.mark.full
def test_it_compiles_to_matrix_instructions_for_nvidia_and_amd_gpus(tmp_path: Path) -> None:
    """No GPU is needed for that. The smallest tile of each size: large ones take seconds each."""
    cases = [
        {
            **TARGETS[gpu.architecture],
            "width": width,
            "tile": gpu.by_width[width][-1],
            "even": width != 2,
            "far": width == 2,
        }
        for gpu, width in itertools.product(tiles.load(), (1, 2, 4))
    ]
    cases[0]["tile"] = (64, 64, 128, 2, 4)  # 64 rows: the least that Hopper's wgmma takes
    cases[1]["tile"] = (64, 64, 64, 3, 4)
    found = in_a_process("compiled.py", cases, TRITON_CACHE_DIR=str(tmp_path), TRITON_DEFAULT_FP_FUSION="1")
    wgmma, mfma = ["wgmma.mma_async"], ["v_mfma"]
    assert [case["matrix"] for case in found] == [wgmma, wgmma, [], *[mfma] * 6]


@pytest.mark.parametrize(("gpu", "width"), list(itertools.product(tiles.load(), (1, 2, 4))))
def test_every_tile_fits_the_shared_memory_of_its_gpu(gpu: tiles.Tiles, width: int) -> None:
    for m, n, k, stages, _ in gpu.by_width[width]:
        buffers = stages if gpu.vendor == "nvidia" else stages - 1
        assert buffers * (m + n) * k * width <= gpu.shared_kib * 1024


def test_a_gpu_without_tiles_of_its_own_gets_those_of_its_vendor() -> None:
    assert [one.architecture for one in tiles.load()] == ["sm_90", "gfx942", "gfx950"]
    assert tiles.of("gfx950", "amd").shared_kib == 160
    assert tiles.of("gfx90a", "amd").architecture == "gfx942"
    assert tiles.of("sm_100", "nvidia").architecture == "sm_90"


@pytest.mark.parametrize(("gpu", "width"), list(itertools.product(tiles.load(), (1, 2, 4))))
def test_every_tile_of_a_gpu_is_a_candidate_that_is_timed_for_each_shape_and_kept(gpu: tiles.Tiles, width: int) -> None:
    tuned = matmul._tuned(gpu.architecture, gpu.vendor, width)
    found = [(*(one.kwargs[f"BLOCK_{axis}"] for axis in "MNK"), one.num_stages, one.num_warps) for one in tuned.configs]
    assert found == list(gpu.by_width[width])
    assert {"M", "N", "K", "CHIPLETS"} <= set(tuned.keys)
    assert tuned.cache_results
    assert matmul.chosen_tile(gpu.architecture, width) == "", "nothing is timed yet"


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA or ROCm device here")
def test_a_tile_of_the_list_is_chosen_by_measuring_on_the_gpu() -> None:
    device = probe("cuda")
    operands = Rotation(Problem(4096, 4096, 4096), 1, "cuda", 0, device.fp8).operands(0)
    multiply(*operands, device.chiplets, device.architecture)
    tuned = matmul._tuned(device.architecture, matmul._vendor(), 2)
    times = [min(one) if isinstance(one, list) else one for one in tuned.configs_timings.values()]
    assert len(times) == len(tuned.configs)
    assert min(times) < max(times)
    assert matmul.chosen_tile(device.architecture, 2).startswith("tile ")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA or ROCm device here")
@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32", "fp8"])
@pytest.mark.parametrize("layout", list(itertools.product((False, True), (False, True))))
def test_the_result_is_right_on_a_gpu(dtype: str, layout: tuple[bool, bool]) -> None:
    device = probe("cuda")
    if dtype == "fp8" and device.fp8 is None:
        pytest.skip(f"{device.name} does not multiply fp8")
    for m, n, k in ((512, 768, 256), (1000, 513, 300), (1, 7, 3)):
        problem = Problem(m, n, k, dtype, *layout)
        operands = Rotation(problem, 1, "cuda", 0, device.fp8).operands(0)
        result = check(lambda a, b, c: multiply(a, b, c, device.chiplets, device.architecture), operands, problem)
        assert result.right
