"""One attention as numbers: its shape, who attends to whom, and its work."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["DTYPES", "PASSES", "Problem"]

DTYPES = ("bf16", "fp16", "fp32")
PASSES = ("forward", "backward")
_PRODUCTS = {"forward": (1, 1), "backward": (3, 2)}
"""Matrix products along a head of keys and along one of values, each 2·d FLOPs for a pair: QKᵀ, PV; backward, QKᵀ again
and those for dQ and dK, and those for dV and dP.
"""


class Problem(NamedTuple):  # a dry run makes the class, and a dataclass takes ten times as long
    """Self-attention: as many queries as keys."""

    batch: int
    seq: int
    heads: int
    kv_heads: int
    head_dim: int
    dtype: str = "bf16"
    causal: bool = False
    window: int = 0
    """A query attends to this many keys at most, itself the last (causal), or less than so far away on both sides.
    0: to all.
    """
    v_head_dim: int = 0
    """Of the values, where it is another one (MLA); 0: the same."""

    @property
    def values(self) -> int:
        """The size of a head of values, and of the output."""
        return self.v_head_dim or self.head_dim

    @property
    def pairs(self) -> int:
        """Of a query and a key that it attends to, in one head."""
        n, w = self.seq, min(self.window or self.seq, self.seq)
        one_side = w * n - w * (w - 1) // 2  # queries near the beginning have fewer keys
        return one_side if self.causal else 2 * one_side - n

    def flops(self, direction: str) -> int:
        """Those that are needed: masked pairs do not count."""
        of_keys, of_values = _PRODUCTS[direction]
        along = of_keys * self.head_dim + of_values * self.values
        return 2 * along * self.batch * self.heads * self.pairs

    def __str__(self) -> str:
        kinds = ["causal"] * self.causal + [f"window {self.window}"] * bool(self.window)
        heads = f"{self.heads} heads" if self.heads == self.kv_heads else f"{self.heads}/{self.kv_heads} heads"
        shape = f"batch {self.batch}, {self.seq} tokens, {heads} of {self.head_dim}"
        shape += f", values of {self.values}" * (self.values != self.head_dim)
        return ", ".join([shape, self.dtype, *kinds])
