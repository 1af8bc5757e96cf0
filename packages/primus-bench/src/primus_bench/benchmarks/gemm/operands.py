"""The operands of a benchmark, in so many copies that no cache holds them when their turn comes again."""

from __future__ import annotations

import math

import torch

from primus_bench.benchmarks.gemm.problem import Problem
from primus_core.errors import MachineError

__all__ = ["Rotation", "sets_for", "torch_dtype"]

_ALIGNMENT = 256
"""Bytes. Each matrix begins where an allocation of its own would: kernels choose their loads by it."""
_DRAWN_AT_ONCE = 2**26
_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}

Operands = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def torch_dtype(name: str, fp8: str | None = None) -> torch.dtype:
    """The type in torch for one of our names; `fp8` is the device's own kind of it."""
    dtype = getattr(torch, fp8) if name == "fp8" and fp8 else _DTYPES.get(name)
    if not isinstance(dtype, torch.dtype):
        why = "e4m3 in matrix units begins with gfx942 (e4m3fnuz), gfx950 (e4m3fn) and sm_89 (e4m3fn)"
        raise MachineError("this device does not multiply fp8", why=why, fix="use --dtype bf16, fp16 or fp32")
    return dtype


def sets_for(problem: Problem, rotation_bytes: int, memory_bytes: int) -> int:
    """How many sets of A, B and C to rotate: more bytes than `rotation_bytes`, two at least if they fit.

    Raises:
        MachineError: not even one set fits.
    """
    one = problem.bytes_moved + 3 * _ALIGNMENT
    fitting = memory_bytes // one
    if fitting < 1:
        raise MachineError(f"{problem} needs {one / 2**30:.1f} GiB; {memory_bytes / 2**30:.1f} GiB are available",
                           fix="choose a smaller -M, -N or -K")  # fmt: skip
    return min(max(2, rotation_bytes // problem.bytes_moved + 1), fitting)


class Rotation:
    """`count` sets of operands in one allocation per matrix, filled with seeded normal data."""

    def __init__(self, problem: Problem, count: int, device: str, seed: int, fp8: str | None = None) -> None:
        generator = torch.Generator(device).manual_seed(seed)
        dtype, out = torch_dtype(problem.dtype, fp8), torch_dtype(problem.out_dtype)
        self.count = count
        of_a, of_b, of_c = problem.copies
        self._a = _Pool((of_a, problem.m, problem.k), problem.trans_a, count, dtype, device)
        self._b = _Pool((of_b, problem.k, problem.n), problem.trans_b, count, dtype, device)
        self._c = _Pool((of_c, problem.m, problem.n), False, count, out, device)
        self._a.draw(generator)
        self._b.draw(generator)

    @property
    def bytes(self) -> int:
        """Bytes of all sets together."""
        return sum(pool.memory.numel() * pool.memory.element_size() for pool in (self._a, self._b, self._c))

    def forget(self) -> None:
        """Make every C what no multiplication leaves."""
        self._c.memory.fill_(math.nan)

    def unwritten(self) -> int:
        """How many sets have a C that nothing was written to since `forget`."""
        firsts = [self._c.matrix(index).flatten()[0] for index in range(self.count)]
        return int(torch.stack(firsts).isnan().sum())

    def operands(self, iteration: int) -> Operands:
        """A, B and C of one iteration; the next one gets the next set."""
        index = iteration % self.count
        return self._a.matrix(index), self._b.matrix(index), self._c.matrix(index)


class _Pool:
    """`count` matrices of one shape, or stacks of matrices, one after the other."""

    def __init__(
        self, shape: tuple[int, int, int], transposed: bool, count: int, dtype: torch.dtype, device: str
    ) -> None:
        stack, rows, columns = shape
        self.stored = (stack, columns, rows) if transposed else shape
        self.transposed = transposed
        step = _ALIGNMENT // dtype.itemsize
        self.length = math.ceil(stack * rows * columns / step) * step
        # zeros: on a CPU this takes the pages now, not in the first timed iterations
        self.memory = torch.zeros(count * self.length, dtype=dtype, device=device)

    def draw(self, generator: torch.Generator) -> None:
        """Standard normal data. Zeros or small integers would let a GPU run up to a fifth faster."""
        for start in range(0, self.memory.numel(), _DRAWN_AT_ONCE):
            part = self.memory[start : start + _DRAWN_AT_ONCE]
            if part.dtype in _DTYPES.values():
                part.normal_(generator=generator)
            else:  # fp8 has no generator of its own
                part.copy_(torch.randn(part.shape, generator=generator, device=part.device))

    def matrix(self, index: int) -> torch.Tensor:
        """One of the matrices, or stacks, in the orientation in which it is multiplied."""
        stored = self.memory[index * self.length :][: math.prod(self.stored)].view(self.stored)
        turned = stored.transpose(1, 2) if self.transposed else stored
        return turned if self.stored[0] > 1 else turned[0]
