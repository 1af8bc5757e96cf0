"""Attention with one backend, of torch or of a package of its own, and the tensors that it works on."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from primus_bench.benchmarks.attention.options import PACKAGES
from primus_bench.benchmarks.attention.problem import Problem

__all__ = ["Attend", "Operands", "attend_with", "draw", "mask", "unavailable"]

Attend = Callable[["Operands"], torch.Tensor]
"""The output for the operands."""

_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
_KINDS = {
    "math": SDPBackend.MATH, "flash": SDPBackend.FLASH_ATTENTION, "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Operands:
    """Batch x heads x tokens x head size. `upstream`: the gradient of the output."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    upstream: torch.Tensor

    @property
    def inputs(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Those that have gradients."""
        return self.q, self.k, self.v


def draw(problem: Problem, device: str, seed: int) -> Operands:
    """Seeded normal data."""
    generator, p = torch.Generator(device).manual_seed(seed), problem
    like = {"dtype": _DTYPES[p.dtype], "device": device, "generator": generator}
    queries = (p.batch, p.heads, p.seq, p.head_dim)
    keys, values = ((p.batch, p.kv_heads, p.seq, size) for size in (p.head_dim, p.values))
    q, k, v = (torch.randn(shape, **like).requires_grad_() for shape in (queries, keys, values))
    return Operands(q, k, v, torch.randn((*queries[:3], p.values), **like))


def mask(problem: Problem, device: str) -> torch.Tensor | None:
    """Tokens x tokens, true where a query attends to a key; None: everywhere."""
    if not (problem.causal or problem.window):
        return None
    place = torch.arange(problem.seq, device=device)
    distance = place[:, None] - place[None, :]
    near = distance.abs() < (problem.window or problem.seq)
    return near & (distance >= 0) if problem.causal else near


def attend_with(backend: str, problem: Problem, device: str) -> Attend:
    """That backend. A window is a mask for those of torch, which have no option for one."""
    if backend in PACKAGES:
        return partial(_attend_packaged, module=PACKAGES[backend].module, options=_packaged(problem))
    explicit = mask(problem, device) if problem.window else None
    options: dict[str, Any] = {"attn_mask": explicit} if problem.window else {"is_causal": problem.causal}
    return partial(_attend, kind=_KINDS[backend], options=options | {"enable_gqa": problem.heads != problem.kv_heads})


def _attend(operands: Operands, kind: Any, options: dict[str, Any]) -> torch.Tensor:
    with sdpa_kernel([kind]):
        return scaled_dot_product_attention(*operands.inputs, **options)


def _packaged(problem: Problem) -> dict[str, Any]:
    """The options that flash-attention brought, and AITER took over: keys to the left and to the right."""
    far = problem.window - 1
    window = {"window_size": (far, 0 if problem.causal else far)} if problem.window else {}
    return {"causal": problem.causal, **window}


def _attend_packaged(operands: Operands, module: str, options: dict[str, Any]) -> torch.Tensor:
    """Both packages want tokens before heads."""
    attend = import_module(module).flash_attn_func
    found: torch.Tensor = attend(*(one.transpose(1, 2) for one in operands.inputs), **options)
    return found.transpose(1, 2)


def unavailable(attend: Attend, operands: Operands) -> str:
    """Why the backend cannot do it; empty: it can."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            attend(operands)
        except torch.OutOfMemoryError:
            return "too little memory"
        except ModuleNotFoundError as error:
            return f"{error.name} is not installed"
        except (ImportError, RuntimeError) as error:  # torch has no kind of its own for a backend that is not there
            return _reason([str(warning.message) for warning in said], str(error))
    return ""


def _reason(warned: Sequence[str], error: str) -> str:
    """The first sentence that says something: torch's error is only that there is no kernel, its warnings say why."""
    reasons = [text for text in warned if " not used because:" not in text]
    return (reasons or [error])[0].splitlines()[0].partition(". ")[0]
