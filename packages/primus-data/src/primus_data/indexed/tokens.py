"""How a token is stored in `PREFIX.bin`, and the largest of the first ones. Needs no numpy, so that plans can check."""

from __future__ import annotations

import sys
from array import array

from primus_data.indexed import layout

__all__ = ["largest", "stored_as"]

_CODES = {1: "B", 2: "b", 3: "h", layout.INT32: "i", 5: "q", layout.UINT16: "H"}
"""The types of whole numbers, as `array` has them."""


def stored_as(prefix: str) -> str:
    """The code of the type of a token, as `array` and numpy have it, little-endian; empty: a token is no whole number.

    Raises:
        OSError: the index cannot be read.
    """
    found = layout.read(prefix)
    return "" if isinstance(found, str) else _CODES.get(found.code, "")


def largest(prefix: str, count: int) -> int:
    """The largest of the first `count` tokens; -1 where there are none.

    Raises:
        OSError: the files cannot be read.
    """
    code = stored_as(prefix)
    if not code:
        return -1  # floating point
    tokens = array(code)
    size = tokens.itemsize
    with open(f"{prefix}.bin", "rb") as file:
        data = file.read(count * size)
    tokens.frombytes(data[: len(data) // size * size])
    if sys.byteorder == "big":
        tokens.byteswap()
    return max(tokens, default=-1)
