"""How a token is stored in `PREFIX.bin`, and whether a model knows the first ones. Needs no numpy: plans check it."""

from __future__ import annotations

import sys
from array import array
from typing import NamedTuple

from primus_data.indexed import described, layout

__all__ = ["Unknown", "largest", "stored_as", "unknown"]

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


class Unknown(NamedTuple):
    """A token of the data that a model lacks."""

    token: int
    needed: int
    """The vocabulary that the model needs: that of the data's tokenizer, if it is known."""


def unknown(prefix: str, vocab_size: int, count: int) -> Unknown | None:
    """Whether a model with so many tokens lacks one of the first `count`; if the record says how many its tokenizer has
    and these are no more, nothing is read.

    Raises:
        OSError: the files cannot be read.
    """
    said = described.vocabulary(prefix)
    if 0 < said <= vocab_size or (token := largest(prefix, count)) < vocab_size:
        return None
    return Unknown(token, max(said, token + 1))
