"""The check before the speed: right results pass in every type, wrong ones do not."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from primus_bench.benchmarks.gemm.accuracy import check, compare
from primus_bench.benchmarks.gemm.operands import Rotation
from primus_bench.benchmarks.gemm.problem import Problem

pytestmark = pytest.mark.torch

PROBLEM = Problem(96, 80, 256)

Engine = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


def multiply(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    """A right engine."""
    return c.copy_(a.double() @ b.double())


def one_tile_missing(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    """Leaves a corner unwritten."""
    c[:90, :70] = a[:90].float() @ b[:, :70].float()
    return c


def one_product_missing(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    """Forgets the last of the K products."""
    return c.copy_(a[:, :-1].float() @ b[:-1].float())


def wrong_operand(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    """Reads one row of A twice."""
    a = a.clone()
    a[7] = a[8]
    return multiply(a, b, c)


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
@pytest.mark.parametrize("size", [1, 16, 300])
def test_torch_passes_in_every_type(dtype: str, size: int) -> None:
    problem = Problem(size, size + 3, size + 5, dtype)
    operands = Rotation(problem, 1, "cpu", 0).operands(0)
    found = check(lambda a, b, c: torch.matmul(a, b, out=c), operands, problem)
    assert found.right
    assert found.rows_checked == size


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
@pytest.mark.parametrize("broken", [one_tile_missing, one_product_missing, wrong_operand])
def test_a_wrong_result_is_found(broken: Engine, dtype: str) -> None:
    problem = Problem(96, 80, 256, dtype)
    found = check(broken, Rotation(problem, 1, "cpu", 0).operands(0), problem)
    assert not found.right
    assert "times what rounding explains" in found.explain()


def test_fp8_is_compared_with_the_operands_as_they_are_stored() -> None:
    problem = Problem(64, 64, 128, "fp8", trans_b=True)
    operands = Rotation(problem, 1, "cpu", 0, "float8_e4m3fn").operands(0)
    assert check(multiply, operands, problem).right


def test_a_result_in_tf32_does_not_pass_for_fp32() -> None:
    """TF32 keeps ten bits of each operand."""
    problem = Problem(96, 80, 256, "fp32")
    a, b, c = Rotation(problem, 1, "cpu", 0).operands(0)

    def short(x: torch.Tensor) -> torch.Tensor:
        return (x.view(torch.int32) & -(2**13)).view(torch.float32)

    multiply(short(a), short(b), c)
    assert not compare(a, b, c, problem).right


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
@pytest.mark.parametrize(("units", "right"), [(7, True), (-7, True), (10, False), (-10, False)])
def test_partial_sums_explain_eight_roundings_and_no_more(dtype: str, units: int, right: bool) -> None:
    """Each is half a unit in the last place of √K, the size of a sum of K products."""
    problem = Problem(96, 80, 256, dtype)
    a, b, c = Rotation(problem, 1, "cpu", 0).operands(0)
    multiply(a, b, c)
    reference = a.double() @ b.double()
    row, column = divmod(int(reference.abs().argmin()), problem.n)
    c[row, column] = reference[row, column] + units * torch.finfo(c.dtype).eps / 2 * math.sqrt(problem.k)
    assert compare(a, b, c, problem).right is right


def test_a_single_nan_is_wrong() -> None:
    a, b, c = Rotation(PROBLEM, 1, "cpu", 0).operands(0)
    multiply(a, b, c)
    assert compare(a, b, c, PROBLEM).right
    c[50, 60] = math.nan
    assert not compare(a, b, c, PROBLEM).right


@pytest.mark.full
def test_a_product_too_large_for_the_reference_is_checked_in_rows_of_every_tile() -> None:
    problem = Problem(4096, 4096, 8192, "fp32")
    shape = (problem.m, problem.n)
    a, b, c = torch.zeros(problem.m, problem.k), torch.zeros(problem.k, problem.n), torch.zeros(shape)
    found = compare(a, b, c, problem)
    assert found.right
    assert problem.m // 64 < found.rows_checked < problem.m
