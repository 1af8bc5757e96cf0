"""One matrix multiplication C = A·B as numbers: its shape, its work, and the bytes that it has to move."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

__all__ = ["DTYPES", "LAYOUTS", "MOST", "Problem"]

DTYPES = ("bf16", "fp16", "fp32", "fp8")
LAYOUTS = ("NN", "NT", "TN", "TT")
"""How A and B are stored: T is transposed. All matrices are row-major."""
MOST = 2**31 - 1
"""The largest size."""

_BYTES = {"bf16": 2, "fp16": 2, "fp32": 4, "fp8": 1}
_WORD = re.compile(r"(.*)=([0-9]+)x([0-9]+)x([0-9]+),([^,]+),([NT])([NT]),([0-9]+),([0-9]+)([mk])")


class Problem(NamedTuple):  # a dry run makes the class, and a dataclass takes ten times as long
    """A is M x K, B is K x N, C is M x N. A transposed operand is stored the other way round.

    With `groups`, it is that many products, as the experts of a layer have them: their rows of A lie one after the
    other, M in all, and each has a B of its own (`split` m); or they share K, and each has a C of its own (`split` k),
    as the gradients of weights do.
    """

    m: int
    n: int
    k: int
    dtype: str = "bf16"
    trans_a: bool = False
    trans_b: bool = False
    name: str = ""
    """Of the model's matrix and the pass, or from a file of shapes."""
    repeats: int = 1
    """How often it stands in what is measured, such as a training step."""
    groups: int = 1
    split: Literal["m", "k"] = "m"

    @property
    def layout(self) -> str:
        """One of `LAYOUTS`."""
        return "NT"[self.trans_a] + "NT"[self.trans_b]

    @property
    def label(self) -> str:
        """What tells it from the others of one run."""
        grouped = f"/{self.groups} groups" if self.groups > 1 else ""
        return self.name or f"{self.m}x{self.n}x{self.k}/{self.dtype}/{self.layout}{grouped}"

    @property
    def out_dtype(self) -> str:
        """The type of C. fp8 has too few digits for a result, so libraries return bf16."""
        return "bf16" if self.dtype == "fp8" else self.dtype

    @property
    def flops(self) -> int:
        """A multiplication and an addition for each of the M·N·K products; of all groups together."""
        return 2 * self.m * self.n * self.k

    @property
    def group_sizes(self) -> tuple[int, ...]:
        """Rows of A, or the part of K, of each group: as even as whole numbers can be."""
        each, rest = divmod(self.m if self.split == "m" else self.k, self.groups)
        return tuple(each + (group < rest) for group in range(self.groups))

    @property
    def copies(self) -> tuple[int, int, int]:
        """How many matrices A, B and C are."""
        return (1, self.groups, 1) if self.split == "m" else (1, 1, self.groups)

    @property
    def bytes_moved(self) -> int:
        """A and B read once, C written once: the least that any implementation moves."""
        a, b, c = self.copies
        read = (a * self.m * self.k + b * self.k * self.n) * _BYTES[self.dtype]
        return read + c * self.m * self.n * _BYTES[self.out_dtype]

    @property
    def intensity(self) -> float:
        """FLOPs for each byte moved. Below the device's own ratio, memory limits the speed."""
        return self.flops / self.bytes_moved

    def word(self) -> str:
        """Itself as one argument of a command; `of_word` reads it."""
        sizes, groups = f"{self.m}x{self.n}x{self.k}", f"{self.groups}{self.split}"
        return f"{self.name}={sizes},{self.dtype},{self.layout},{self.repeats},{groups}"

    @classmethod
    def of_word(cls, text: str) -> Problem:
        """What `word` wrote.

        Raises:
            ValueError: it is something else.
        """
        if not (found := _WORD.fullmatch(text)):
            raise ValueError(text)
        name, m, n, k, dtype, a, b, count, groups, split = found.groups()
        return cls(int(m), int(n), int(k), dtype, a == "T", b == "T", name, int(count), int(groups),
                   "k" if split == "k" else "m")  # fmt: skip

    def __str__(self) -> str:
        a, b = "Aᵀ" if self.trans_a else "A", "Bᵀ" if self.trans_b else "B"
        grouped = f", {self.groups} groups along {self.split.upper()}" if self.groups > 1 else ""
        name = f"{self.name}: " if self.name else ""
        return f"{name}C = {a}·{b}, M={self.m} N={self.n} K={self.k}{grouped}, {self.dtype}"
