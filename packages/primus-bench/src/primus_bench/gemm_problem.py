"""One matrix multiplication C = A·B as numbers: its shape, its work, and the bytes that it has to move."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["DTYPES", "Problem"]

DTYPES = ("bf16", "fp16", "fp32", "fp8")

_BYTES = {"bf16": 2, "fp16": 2, "fp32": 4, "fp8": 1}


@dataclass(frozen=True, slots=True)
class Problem:
    """A is M x K, B is K x N, C is M x N. A transposed operand is stored the other way round."""

    m: int
    n: int
    k: int
    dtype: str = "bf16"
    trans_a: bool = False
    trans_b: bool = False
    name: str = ""
    """Of the model's matrix that it multiplies with."""

    @property
    def out_dtype(self) -> str:
        """The type of C. fp8 has too few digits for a result, so libraries return bf16."""
        return "bf16" if self.dtype == "fp8" else self.dtype

    @property
    def flops(self) -> int:
        """A multiplication and an addition for each of the M·N·K products."""
        return 2 * self.m * self.n * self.k

    @property
    def bytes_moved(self) -> int:
        """A and B read once, C written once: the least that any implementation moves."""
        read = (self.m * self.k + self.k * self.n) * _BYTES[self.dtype]
        return read + self.m * self.n * _BYTES[self.out_dtype]

    @property
    def intensity(self) -> float:
        """FLOPs for each byte moved. Below the device's own ratio, memory limits the speed."""
        return self.flops / self.bytes_moved

    def __str__(self) -> str:
        a, b = "Aᵀ" if self.trans_a else "A", "Bᵀ" if self.trans_b else "B"
        return f"{self.name + ': ' if self.name else ''}C = {a}·{b}, M={self.m} N={self.n} K={self.k}, {self.dtype}"
