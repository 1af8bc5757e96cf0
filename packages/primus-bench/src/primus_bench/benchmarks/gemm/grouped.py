"""Grouped GEMM: the products of all groups as views of one problem's operands, and what multiplies them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import accumulate

import torch

from primus_bench.benchmarks.gemm.operands import Operands
from primus_bench.benchmarks.gemm.problem import Problem
from primus_bench.measure.device import Device

__all__ = ["Engine", "fused", "has_fused", "loop", "members"]

Engine = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
"""Writes A·B into C and returns it, or returns a tensor of its own."""

_FUSED = "_grouped_mm"
_FUSED_ON = ("sm_90", "sm_100", "sm_103", "gfx942", "gfx950")
"""Where it is one kernel; elsewhere torch itself multiplies one group after the other."""


def members(operands: Operands, problem: Problem) -> Iterator[tuple[Problem, Operands]]:
    """The product of each group, its operands as views."""
    a, b, c = operands
    sizes = problem.group_sizes
    for group, end in enumerate(accumulate(sizes)):
        size, part = sizes[group], slice(end - sizes[group], end)
        if problem.split == "m":
            yield problem._replace(m=size, groups=1), (a[part], b[group], c[part])
        else:
            yield problem._replace(k=size, groups=1), (a[:, part], b[part], c[group])


def loop(one: Engine, problem: Problem) -> Engine:
    """One product after the other, by an engine for one."""

    def run(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        for _, product in members((a, b, c), problem):
            one(*product)
        return c

    return run


def has_fused(problem: Problem, device: Device) -> bool:
    """Whether torch multiplies all groups of `problem` in one kernel."""
    return problem.dtype == "bf16" and device.architecture in _FUSED_ON and hasattr(torch, _FUSED)


def fused(problem: Problem, device: Device) -> Engine:
    """All groups at once."""
    ends = torch.tensor(list(accumulate(problem.group_sizes)), dtype=torch.int32, device=device.kind)
    multiply: Callable[..., torch.Tensor] = getattr(torch, _FUSED)
    return lambda a, b, _c: multiply(a, b, offs=ends)
