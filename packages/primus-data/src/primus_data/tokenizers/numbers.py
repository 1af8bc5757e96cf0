"""Megatron's NullTokenizer: a text is its ids, as numbers with a space between; for measurements and tests."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from primus_data.tokenizers.definition import Definition, Encoded, digest, joined
from primus_machine.errors import RequestError

__all__ = ["define"]


class _Numbers:
    name = "numbers"

    def __init__(self, vocab_size: int) -> None:
        self._vocab_size = vocab_size

    def encode(self, texts: Sequence[str]) -> Encoded:
        return joined([self._ids(text) for text in texts])

    def _ids(self, text: str) -> list[int]:
        try:
            ids = [int(word) for word in text.split(" ")]
        except ValueError:
            ids = [-1]
        if min(ids) < 0 or max(ids) >= self._vocab_size:
            what = f"text {text[:60]!a} is not made of numbers below {self._vocab_size}"
            raise RequestError(what, why="NullTokenizer takes texts that are ids")
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        return " ".join(map(str, np.asarray(ids).tolist()))


def define(vocab_size: int) -> Definition:
    """The tokenizer of so many ids; the last one ends a document.

    Raises:
        RequestError: no size is given.
    """
    if vocab_size < 1:
        raise RequestError("NullTokenizer needs the size of the vocabulary", fix="pass --vocab-size")
    return Definition(vocab_size, vocab_size - 1, digest("numbers", {}, size=vocab_size), lambda: _Numbers(vocab_size))
