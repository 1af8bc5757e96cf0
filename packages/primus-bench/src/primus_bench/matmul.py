"""Primus's own matrix multiplication in Triton: tiled, autotuned, any layout through strides, fp32 accumulation."""

# mypy: disable-error-code="no-untyped-def,untyped-decorator"
# Triton has no types, and takes an annotation in a kernel for one of its own.
# ruff: noqa: N803  # upper case is Triton's way to mark what is fixed at compile time

from __future__ import annotations

from functools import cache
from typing import Any

import torch
import triton
import triton.language as tl

__all__ = ["multiply"]


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


# Tiles to try, by vendor and bytes per element: BLOCK_M, BLOCK_N, BLOCK_K, stages, warps. Large tiles reuse most,
# small ones fill the device when the matrix is small; stages x (BLOCK_M + BLOCK_N) x BLOCK_K must fit shared memory
# (227 KiB on Hopper, 64 KiB on gfx942, which needs one buffer less than it has stages).
_TILES: dict[tuple[str, int], tuple[tuple[int, int, int, int, int], ...]] = {
    ("nvidia", 1): ((128, 256, 128, 3, 8), (256, 128, 128, 3, 8), (128, 128, 128, 4, 8), (128, 128, 128, 3, 4),
                    (64, 128, 128, 4, 4), (64, 64, 128, 4, 4)),
    ("nvidia", 2): ((128, 256, 64, 3, 8), (128, 256, 64, 4, 8), (256, 128, 64, 3, 8), (256, 128, 64, 4, 8),
                    (128, 128, 64, 4, 8), (128, 128, 64, 4, 4), (128, 128, 32, 5, 4), (64, 128, 64, 4, 4),
                    (128, 64, 64, 4, 4), (64, 64, 64, 5, 4), (32, 64, 128, 4, 4)),
    ("nvidia", 4): ((128, 128, 16, 3, 8), (128, 64, 16, 3, 4), (64, 128, 32, 3, 8), (64, 64, 32, 3, 4),
                    (32, 64, 32, 3, 4)),
    ("amd", 1): ((256, 256, 128, 2, 8), (256, 128, 128, 2, 8), (128, 256, 128, 2, 8), (128, 128, 128, 2, 8),
                 (128, 128, 128, 2, 4), (64, 128, 128, 2, 4), (64, 64, 128, 2, 4)),
    ("amd", 2): ((256, 256, 64, 2, 8), (256, 256, 32, 2, 8), (256, 128, 64, 2, 8), (128, 256, 64, 2, 8),
                 (128, 128, 64, 2, 8), (128, 128, 64, 2, 4), (128, 128, 32, 2, 4), (64, 128, 64, 2, 4),
                 (64, 64, 64, 2, 4)),
    ("amd", 4): ((128, 128, 32, 2, 8), (128, 128, 16, 2, 4), (128, 64, 32, 2, 4), (64, 64, 32, 2, 4)),
}  # fmt: skip

_AMD_MATRIX_CORE = {"matrix_instr_nonkdim": 16}
"""16 x 16 matrix instructions draw less power than 32 x 32 ones, so the clock stays higher."""

_SMALL = {"BLOCK_M": 32, "BLOCK_N": 32, "BLOCK_K": 32, "GROUP": 4, "EVEN_K": False}


@cache
def _tuned(vendor: str, width: int) -> Any:
    """The kernel with the tiles of one kind of device; it times them on its first call for a shape."""
    options = _AMD_MATRIX_CORE if vendor == "amd" else {}
    configs = [
        triton.Config(
            {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "GROUP": 8, **options}, num_stages=stages, num_warps=warps
        )
        for m, n, k, stages, warps in _TILES[vendor, width]
    ]
    even = triton.heuristics({"EVEN_K": lambda args: args["K"] % args["BLOCK_K"] == 0})(_kernel)
    return triton.autotune(configs, key=["M", "N", "K", "stride_ak", "stride_bk"])(even)


def multiply(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, chiplets: int = 1) -> None:
    """Write A·B into C. On CPU tensors this needs TRITON_INTERPRET=1, which is for tests of correctness alone."""
    (m, k), n = a.shape, b.shape[1]

    def grid(meta: dict[str, Any]) -> tuple[int]:
        return (triton.cdiv(m, meta["BLOCK_M"]) * triton.cdiv(n, meta["BLOCK_N"]),)

    vendor = "amd" if torch.version.hip else "nvidia"
    kernel = _tuned(vendor, a.element_size()) if a.is_cuda else _kernel
    chosen_here = {} if a.is_cuda else _SMALL
    kernel[grid](
        a, b, c, m, n, k, *a.stride(), *b.stride(), *c.stride(),
        CHIPLETS=chiplets, FAR=max(map(_reach, (a, b, c))) >= 2**31, WIDEN=not a.is_cuda, **chosen_here,
    )  # fmt: skip


def _reach(matrix: torch.Tensor) -> int:
    """The farthest offset of an element, with a tile's overhang."""
    return sum((size + 256) * stride for size, stride in zip(matrix.shape, matrix.stride(), strict=True))
