"""Grouped GEMM: each group is a product of its own, whichever engine multiplies."""

from __future__ import annotations

import math

import pytest
import torch

from primus_bench.benchmarks.gemm.accuracy import check, compare
from primus_bench.benchmarks.gemm.engines import engine
from primus_bench.benchmarks.gemm.grouped import fused, has_fused
from primus_bench.benchmarks.gemm.operands import Rotation
from primus_bench.benchmarks.gemm.problem import Problem
from primus_bench.measure.device import Device, probe

pytestmark = pytest.mark.torch

CPU = Device("cpu", "a CPU", "AVX2", 2, 2**20, 2**30)
EXPERTS = Problem(70, 24, 40, "bf16", trans_b=True, groups=4)
GRADIENTS = Problem(24, 40, 70, "bf16", trans_a=True, groups=4, split="k")


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
@pytest.mark.parametrize("problem", [EXPERTS, EXPERTS._replace(trans_b=False), GRADIENTS], ids=str)
def test_a_loop_multiplies_each_group(problem: Problem, dtype: str) -> None:
    problem = problem._replace(dtype=dtype)
    a, b, c = Rotation(problem, 2, "cpu", 0).operands(1)
    found = engine("torch", problem, CPU)
    assert found.method == "a loop of torch.matmul"
    assert check(found.run, (a, b, c), problem).right
    ends = [sum(problem.group_sizes[: group + 1]) for group in range(4)]
    begin, end = ends[1], ends[2]
    if problem.split == "m":
        assert torch.allclose(c[begin:end].float(), a[begin:end].float() @ b[2].float(), rtol=0.02, atol=0.1)
    else:
        assert torch.allclose(c[2].float(), a[:, begin:end].float() @ b[begin:end].float(), rtol=0.02, atol=0.1)


@pytest.mark.parametrize("problem", [EXPERTS, GRADIENTS], ids=str)
def test_torch_s_own_grouped_gemm_computes_the_same(problem: Problem) -> None:
    if not hasattr(torch, "_grouped_mm"):
        pytest.skip("this torch has no _grouped_mm")
    problem = problem._replace(m=64 if problem.split == "m" else 24, k=40 if problem.split == "m" else 64)
    assert check(fused(problem, CPU), Rotation(problem, 1, "cpu", 0).operands(0), problem).right


@pytest.mark.parametrize("problem", [EXPERTS, GRADIENTS], ids=str)
def test_one_wrong_group_is_found(problem: Problem) -> None:
    a, b, c = Rotation(problem, 1, "cpu", 0).operands(0)
    engine("torch", problem, CPU).run(a, b, c)
    assert compare(a, b, c, problem).right
    spoiled = c[1] if problem.split == "k" else c[20:30]
    spoiled[3, 5] += 10
    assert not compare(a, b, c, problem).right
    spoiled[3, 5] = math.nan
    assert not compare(a, b, c, problem).right


def test_one_kernel_is_named_where_torch_has_one() -> None:
    hopper = Device("cuda", "NVIDIA H100", "sm_90", 132, 2**29, 2**36, "float8_e4m3fn")
    ampere = Device("cuda", "NVIDIA A100", "sm_80", 108, 2**29, 2**36)
    assert has_fused(EXPERTS, hopper) == hasattr(torch, "_grouped_mm")
    assert not has_fused(EXPERTS, ampere)
    assert not has_fused(EXPERTS._replace(dtype="fp16"), hopper)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA or ROCm device here")
@pytest.mark.parametrize("name", ["torch", "triton"])
@pytest.mark.parametrize("problem", [EXPERTS, GRADIENTS], ids=str)
def test_grouped_gemms_are_right_on_a_gpu(problem: Problem, name: str) -> None:
    problem = problem._replace(m=512 if problem.split == "m" else 128, n=256, k=128 if problem.split == "m" else 512)
    device = probe("cuda")
    found = engine(name, problem, device)
    assert check(found.run, Rotation(problem, 1, "cuda", 0).operands(0), problem).right
