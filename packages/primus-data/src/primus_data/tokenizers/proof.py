"""Texts at which tokenizers differ, to compare a fast library with the reference before it is trusted.

Each piece is what some implementation once took differently: where a split regex uses Unicode's classes, where a
normalizer composes, strips or drops, and above all a tokenizer's own special tokens, written in a text.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from itertools import chain, product

import numpy as np

from primus_data.tokenizers.definition import Encoded

__all__ = ["PIECES", "difference", "digest", "texts"]

PIECES = (
    *("a", "Hello", " world", "camelCase", "ABCdef", "don't", "'S", "'re", "'ſ", "x" * 60, "_", "http://a.b/c?d=e&f"),
    *(" ", "  ", "       ", " " * 70, "\t", "\n", "\r\n", "\n\n", " \n", "\r", "\n" * 20, "    indented", "\x0b\x0c"),
    *("0", "12", "123", "1234567", " 42", "٣٤٥", "½²", "ⅷ", "𝟘𝟙", "१२३", "3.14e-10"),
    *("é", "e\u0301", "\u0301", "ﬀ", "İ", "ß", "ǅ", "ª", "Å", "\u212b", "ｆｕｌｌ", "각", "\u1100\u1161"),
    *("👩\u200d👩\u200d👧", "🇩🇪", "😀", "👍🏽", "\ufe0f", "\u200d", "\u200b", "\u00ad", "\u2060", "\ufeff"),
    *("مرحبا", "שלום", "\u202e", "中文字", "日本語です", "ไทย", "हिन्दी", "Привет", "Ελλάδα"),
    *("\x00", "\x07", "\x1b[31m", "\x1c", "\x1f", "\x7f", "\x85", "\u00a0", "\u1680", "\u180e", "\u2028", "\u3000"),
    *("\ufffd", "\ufffe", "\U0010ffff", "\u0378", "\ue000", "\U000e0001", "…", "—", "“q”", "$€", "...", "!!??", "=>"),
    *("<|endoftext|>", "<s>", "</s>", "<unk>", "<pad>", "<0x0A>", "▁", "▁▁", "Ġ", "Ċ", "##ing", "</w>", "[MASK]"),
)
_COUNT = 400
_SOME = 24
"""Special tokens that are tried: a tokenizer may have thousands, all alike."""


def texts(specials: Sequence[str] = (), count: int = _COUNT, seed: int = 0) -> list[str]:
    """The same for each call: every piece alone and beside every other, specials with spaces around, and mixtures."""
    chance = random.Random(seed)  # noqa: S311  # no secret
    own = [*specials[: _SOME // 2], *specials[max(_SOME // 2, len(specials) - _SOME // 2) :]]
    around = [f"a{one}b {one} c  {one}\n{one}{one}. {one[1:]} {one.upper()}" for one in own if one]
    pieces = (*PIECES, *own)
    pairs = map("".join, product(PIECES, PIECES))
    spaces = [piece for piece in PIECES if piece.isspace()]
    between = (f"a{one}{other}b" for one, other in product(spaces, spaces))
    mixed = ("".join(chance.choices(pieces, k=chance.randint(1, 14))) for _ in range(count))
    return list(chain([""], pieces, pairs, between, around, mixed))


def digest(found: Encoded) -> str:
    """The sha256 over ids, and how many there are of each text."""
    ids, counts = found
    return hashlib.sha256(ids.astype("<u4").tobytes() + counts.astype("<i8").tobytes()).hexdigest()


def difference(tried: Sequence[str], found: Encoded, expected: Encoded) -> str:
    """The first text that got other ids; empty if there is none."""
    (ids, counts), (right, lengths) = found, expected
    if np.array_equal(counts, lengths) and np.array_equal(ids, right):
        return ""
    starts, begins = np.cumsum(counts) - counts, np.cumsum(lengths) - lengths
    for text, at, size, begin, length in zip(tried, starts, counts, begins, lengths, strict=True):
        if not np.array_equal(ids[at : at + size], right[begin : begin + length]):
            return f"it encodes {text[:60]!a} differently"
    return "it encodes differently"
