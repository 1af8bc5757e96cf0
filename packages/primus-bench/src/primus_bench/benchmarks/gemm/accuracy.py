"""Whether a product is right: a wrong one has no speed. The reference is computed in more digits than the result."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from primus_bench.benchmarks.gemm import grouped
from primus_bench.benchmarks.gemm.grouped import Engine
from primus_bench.benchmarks.gemm.operands import Operands
from primus_bench.benchmarks.gemm.problem import Problem

__all__ = ["Accuracy", "check", "compare"]

_AFFORDABLE = {"cpu": 5e10, "cuda": 4e12}
"""FLOPs that the reference may cost, a second or so. Beyond it, evenly spaced rows are checked."""
_LEAST_ROWS = 16
_COLUMNS = 4096
"""Columns at a time: the reference needs B in four or eight bytes per element."""


@dataclass(frozen=True, slots=True)
class Accuracy:
    """How far a result is from its reference."""

    largest_error: float
    of_tolerance: float
    """The largest error in units of what is tolerated at its place; above 1 the result is wrong."""
    rows_checked: int

    @property
    def right(self) -> bool:
        """False for NaN too."""
        return self.of_tolerance <= 1

    def explain(self) -> str:
        """What is wrong with it; empty: nothing."""
        if self.right:
            return ""
        return (
            f"largest error {self.largest_error:.3g}, {self.of_tolerance:.3g} times what rounding explains "
            f"({self.rows_checked} rows checked)"
        )


def check(run: Engine, operands: Operands, problem: Problem) -> Accuracy:
    """Run `run` once and compare its result with the reference."""
    a, b, c = operands
    c.fill_(math.nan)  # what the engine leaves unwritten must not pass
    return compare(a, b, run(a, b, c), problem)


def compare(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, problem: Problem) -> Accuracy:
    """Compare C with A·B in fp32, or in fp64 where C itself is fp32; the worst of all groups."""
    affordable = _AFFORDABLE[a.device.type] / problem.groups
    if problem.groups == 1:
        return _compare(a, b, c, problem, affordable)
    found = [_compare(*operands, one, affordable) for one, operands in grouped.members((a, b, c), problem)]
    worst = max(found, key=lambda one: (not one.right, one.of_tolerance))  # NaN is not right
    return Accuracy(worst.largest_error, worst.of_tolerance, sum(one.rows_checked for one in found))


def _compare(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, problem: Problem, affordable: float) -> Accuracy:
    wide = torch.float64 if problem.dtype == "fp32" else torch.float32
    step = _row_step(problem, affordable)
    some = a[::step].to(wide)
    errors, excesses = [], []
    for start in range(0, problem.n, _COLUMNS):
        part = slice(start, start + _COLUMNS)
        reference = some @ b[:, part].to(wide)
        error = (c[::step, part].to(wide) - reference).abs()
        errors.append(error.max())
        excesses.append((error / _tolerance(reference, problem, c.dtype)).max())
    # max() of a stack, not of Python floats: it lets a NaN through
    return Accuracy(torch.stack(errors).max().item(), torch.stack(excesses).max().item(), len(some))


def _row_step(problem: Problem, affordable: float) -> int:
    rows = max(_LEAST_ROWS, int(affordable / (2 * problem.n * problem.k)))
    # odd: a power of two would look at the same row of each tile
    return max(1, problem.m // rows) | 1 if rows < problem.m else 1


def _tolerance(reference: torch.Tensor, problem: Problem, out: torch.dtype) -> torch.Tensor:
    """What rounding explains, element by element.

    The elements are sums of K products of standard normal numbers, so √K is their size. Rounding the result costs half
    a unit in its last place; a library may also add partial sums in the type of the result (split K), each of size √K.
    Accumulating K products in fp32 costs a random walk of K steps, each half a unit of a partial sum: K·u at most a few
    times over. A single missing product of the K stands out from either.
    """
    unit = torch.finfo(out).eps / 2
    partial_sums = 8 * unit * math.sqrt(problem.k)
    accumulation = 8 * torch.finfo(torch.float32).eps / 2 * problem.k
    return reference.abs() * unit + (partial_sums + accumulation)
