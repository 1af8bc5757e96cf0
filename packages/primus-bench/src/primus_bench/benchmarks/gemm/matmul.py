"""Primus's own matrix multiplication in Triton: tiled, autotuned, any layout through strides, fp32 accumulation."""

# mypy: disable-error-code="no-untyped-def,untyped-decorator"
# Triton has no types, and takes an annotation in a kernel for one of its own.
# ruff: noqa: N803  # upper case is Triton's way to mark what is fixed at compile time

from __future__ import annotations

from functools import cache
from inspect import signature
from typing import Any

import torch
import triton
import triton.language as tl

from primus_bench.benchmarks.gemm.tiles import of

__all__ = ["chosen_tile", "multiply"]


@triton.jit
def _beside(pid, tiles, CHIPLETS: tl.constexpr):
    """The tile of program `pid`, so that the programs of one chiplet get neighbouring tiles.

    The hardware deals programs to the chiplets in turn, and each has an L2 cache of its own.
    """
    each = tl.cdiv(tiles, CHIPLETS)
    full = CHIPLETS - (each * CHIPLETS - tiles)  # chiplets with `each` tiles; the others have one less
    chiplet = pid % CHIPLETS
    before = chiplet * each - tl.maximum(chiplet - full, 0)
    return before + pid // CHIPLETS


@triton.jit
def _kernel(
    a, b, c, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
    CHIPLETS: tl.constexpr, EVEN_K: tl.constexpr, FAR: tl.constexpr, WIDEN: tl.constexpr,
):  # fmt: skip
    """C = A·B, one BLOCK_M x BLOCK_N tile of C per program."""
    tiles_m, tiles_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    tile = tl.program_id(0)
    if CHIPLETS > 1:
        tile = _beside(tile, tiles_m * tiles_n, CHIPLETS)
    # GROUP rows of tiles at a time: what they read of A and B then stays in L2
    first = tile // (GROUP * tiles_n) * GROUP
    height = tl.minimum(tiles_m - first, GROUP)
    tile_m = first + tile % (GROUP * tiles_n) % height
    tile_n = tile % (GROUP * tiles_n) // height

    # the modulo keeps loads in bounds without a mask; the rows it repeats are never stored
    rows = (tile_m * BLOCK_M + tl.arange(0, BLOCK_M)) % M
    columns = (tile_n * BLOCK_N + tl.arange(0, BLOCK_N)) % N
    depth = tl.arange(0, BLOCK_K)
    if FAR:  # offsets beyond 2³¹
        rows, columns, depth = rows.to(tl.int64), columns.to(tl.int64), depth.to(tl.int64)
    a_tile = a + rows[:, None] * stride_am + depth[None, :] * stride_ak
    b_tile = b + depth[:, None] * stride_bk + columns[None, :] * stride_bn

    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        if EVEN_K:
            x, y = tl.load(a_tile), tl.load(b_tile)
        else:
            x = tl.load(a_tile, mask=depth[None, :] < K - start, other=0.0)
            y = tl.load(b_tile, mask=depth[:, None] < K - start, other=0.0)
        if WIDEN:  # Triton's interpreter computes nonsense in bf16
            x, y = x.to(tl.float32), y.to(tl.float32)
        if x.dtype.is_fp8():
            # Hopper's fp8 units accumulate in 14 bits; this moves the sum to fp32 after each block
            total = tl.dot(x, y, total, max_num_imprecise_acc=BLOCK_K)
        else:
            # "ieee": for fp32 Triton would else round the operands to TF32
            total = tl.dot(x, y, total, input_precision="ieee")
        a_tile += BLOCK_K * stride_ak
        b_tile += BLOCK_K * stride_bk

    rows = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    if FAR:
        rows, columns = rows.to(tl.int64), columns.to(tl.int64)
    place = c + rows[:, None] * stride_cm + columns[None, :] * stride_cn
    tl.store(place, total.to(c.dtype.element_ty), mask=inside)


_SMALL = {"BLOCK_M": 32, "BLOCK_N": 32, "BLOCK_K": 32, "GROUP": 4, "EVEN_K": False}


_KEY = ["M", "N", "K", "stride_ak", "stride_bk", "CHIPLETS"]
"""A change of these is another shape, or another partition of the GPU, and is tuned anew."""
_KEPT = {"cache_results": True} if "cache_results" in signature(triton.autotune).parameters else {}
"""Older versions of Triton keep no times on disk."""


@cache
def _tuned(architecture: str, vendor: str, width: int) -> Any:
    """The kernel with the tiles of one kind of device; it times them on its first call for a shape.

    Triton keeps the times on disk, by architecture, kernel, tiles and shape, and times none of them twice.
    """
    tiles = of(architecture, vendor)
    configs = [
        triton.Config(
            {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "GROUP": 8, **tiles.options}, num_stages=stages, num_warps=warps
        )
        for m, n, k, stages, warps in tiles.by_width[width]
    ]
    even = triton.heuristics({"EVEN_K": lambda args: args["K"] % args["BLOCK_K"] == 0})(_kernel)
    return triton.autotune(configs, key=_KEY, **_KEPT)(even)


def chosen_tile(architecture: str, width: int) -> str:
    """The tile that the last call for a shape was measured to be best with; empty: none was timed."""
    found = getattr(_tuned(architecture, _vendor(), width), "best_config", None)
    if not found:
        return ""
    m, n, k = (found.kwargs[f"BLOCK_{axis}"] for axis in "MNK")
    return f"tile {m}x{n}x{k}, {found.num_stages} stages, {found.num_warps} warps"


def _vendor() -> str:
    return "amd" if torch.version.hip else "nvidia"


def multiply(
    a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, chiplets: int = 1, architecture: str = ""
) -> torch.Tensor:
    """Write A·B into C, and return it.

    On CPU tensors this needs TRITON_INTERPRET=1, which is for tests of correctness alone.
    """
    (m, k), n = a.shape, b.shape[1]

    def grid(meta: dict[str, Any]) -> tuple[int]:
        return (triton.cdiv(m, meta["BLOCK_M"]) * triton.cdiv(n, meta["BLOCK_N"]),)

    kernel = _tuned(architecture, _vendor(), a.element_size()) if a.is_cuda else _kernel
    chosen_here = {} if a.is_cuda else _SMALL
    kernel[grid](
        a, b, c, m, n, k, *a.stride(), *b.stride(), *c.stride(),
        CHIPLETS=chiplets, FAR=max(map(_reach, (a, b, c))) >= 2**31, WIDEN=not a.is_cuda, **chosen_here,
    )  # fmt: skip
    return c


def _reach(matrix: torch.Tensor) -> int:
    """The farthest offset of an element, with a tile's overhang."""
    return sum((size + 256) * stride for size, stride in zip(matrix.shape, matrix.stride(), strict=True))
