"""The engines that can multiply: each is a function that writes A·B into C."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

import torch

from primus_bench.benchmarks.gemm import grouped
from primus_bench.benchmarks.gemm.grouped import Engine
from primus_bench.benchmarks.gemm.problem import Problem
from primus_bench.measure.device import Device

__all__ = ["Engine", "Multiplication", "engine"]


@dataclass(frozen=True, slots=True)
class Multiplication:
    """An engine, ready to be called for operands of one problem on one device."""

    run: Engine
    method: str
    """What it calls."""
    writes: bool = True
    """To C, and not to a tensor of its own."""
    otherwise: Multiplication | None = None
    """What to call where its library has no kernel for the problem."""
    chosen: Callable[[], str] = str
    """What it chose for the problem by measuring, known after the first call; empty: nothing."""


def engine(name: str, problem: Problem, device: Device) -> Multiplication:
    """The engine `name`."""
    if problem.groups == 1:
        return _BUILDERS[name](problem, device)
    one = _BUILDERS[name](problem, device)
    loop = Multiplication(grouped.loop(one.run, problem), f"a loop of {one.method}")
    if name == "torch" and grouped.has_fused(problem, device):
        return Multiplication(grouped.fused(problem, device), "torch._grouped_mm", writes=False, otherwise=loop)
    return loop


def _torch(problem: Problem, device: Device) -> Multiplication:
    if problem.dtype == "fp8":
        one = torch.ones((), device=device.kind)
        return Multiplication(partial(_scaled, one=one), f"torch._scaled_mm, {device.fp8}")
    return Multiplication(_matmul, "torch.matmul")


def _matmul(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    return torch.matmul(a, b, out=c)


def _scaled(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, one: torch.Tensor) -> torch.Tensor:
    # without `use_fast_accum`: Hopper's shortcut loses digits, and other devices have none
    torch._scaled_mm(a, b, one, one, out_dtype=c.dtype, out=c)  # noqa: SLF001  # torch's only fp8 product
    return c


def _triton(problem: Problem, device: Device) -> Multiplication:
    from primus_bench.benchmarks.gemm.matmul import chosen_tile, multiply  # Triton is needed for this engine alone

    run = partial(multiply, chiplets=device.chiplets, architecture=device.architecture)
    kind = f", {device.fp8}" if problem.dtype == "fp8" else ""
    width = 1 if problem.dtype == "fp8" else 4 if problem.dtype == "fp32" else 2
    tile = partial(chosen_tile, device.architecture, width) if device.kind == "cuda" else str
    return Multiplication(run, f"Primus's Triton kernel{kind}", chosen=tile)


_BUILDERS: Mapping[str, Callable[[Problem, Device], Multiplication]] = MappingProxyType(
    {"torch": _torch, "triton": _triton}
)
