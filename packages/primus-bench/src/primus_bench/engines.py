"""The engines that can multiply: each is a function that writes A·B into C."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType

import torch

from primus_bench.device import Device
from primus_bench.gemm_problem import Problem

__all__ = ["Engine", "engine"]

Engine = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], object]


def engine(name: str, problem: Problem, device: Device) -> Engine:
    """The engine `name`, ready to be called for operands of `problem` on `device`."""
    return _BUILDERS[name](problem, device)


def _torch(problem: Problem, device: Device) -> Engine:
    if problem.dtype == "fp8":
        return partial(_scaled, one=torch.ones((), device=device.kind))
    return _matmul


def _matmul(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> object:
    return torch.matmul(a, b, out=c)


def _scaled(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, one: torch.Tensor) -> object:
    # without `use_fast_accum`: Hopper's shortcut loses digits, and other devices have none
    return torch._scaled_mm(a, b, one, one, out_dtype=c.dtype, out=c)  # noqa: SLF001  # torch's only fp8 product


def _triton(_problem: Problem, device: Device) -> Engine:
    from primus_bench.matmul import multiply  # Triton is needed for this engine alone

    return partial(multiply, chiplets=device.chiplets)


_BUILDERS: Mapping[str, Callable[[Problem, Device], Engine]] = MappingProxyType({"torch": _torch, "triton": _triton})
