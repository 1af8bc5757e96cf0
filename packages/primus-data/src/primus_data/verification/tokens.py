"""The tokens, in one pass over the data: ids outside the vocabulary, documents without their last token, duplicates."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np

from primus_data.indexed.streams import Piece
from primus_data.verification.findings import Finding

__all__ = ["EndOfDocument", "TokenCheck", "VocabularyRange"]

_EXAMPLES = 3


class TokenCheck(Protocol):
    """Sees all pieces of the data in their order."""

    def see(self, piece: Piece) -> None:
        """The next one."""

    def findings(self) -> Iterator[Finding]:
        """After the last one."""


class VocabularyRange:
    """Ids that the vocabulary does not have. `size` None: only the largest id is looked for."""

    def __init__(self, size: int | None) -> None:
        self.size = size
        self.largest: int | None = None
        self._smallest = 0
        self._places: dict[str, str] = {}
        self._outside = self._negative = 0

    def see(self, piece: Piece) -> None:
        """The next one."""
        largest, smallest = int(piece.values.max()), int(piece.values.min())
        if self.largest is None or largest > self.largest:
            self.largest = largest
            self._places["largest"] = _place(piece, int(piece.values.argmax()))
        if smallest < self._smallest:
            self._smallest = smallest
            self._places["smallest"] = _place(piece, int(piece.values.argmin()))
        if smallest < 0:
            self._negative += int(np.count_nonzero(piece.values < 0))
        if self.size is not None and largest >= self.size:
            self._outside += int(np.count_nonzero(piece.values >= self.size))

    def findings(self) -> Iterator[Finding]:
        """After the last one."""
        if self._negative:
            example = f"the smallest, {self._smallest:,}, is {self._places['smallest']}"
            yield Finding("tokens", f"{self._negative:,} tokens are negative", self._negative, (example,))
        if self._outside and self.size is not None:
            example = f"the largest, {self.largest:,}, is {self._places['largest']}"
            what = f"{self._outside:,} tokens are outside the vocabulary (0 to {self.size - 1:,})"
            yield Finding("tokens", what, self._outside, (example,))


def _place(piece: Piece, index: int) -> str:
    document, position = piece.document_at(index)
    return f"token {position:,} of document {document:,}"


class EndOfDocument:
    """Documents that do not end with a token. Empty ones have none."""

    def __init__(self, eod: int) -> None:
        self.eod = eod
        self._count = 0
        self._examples: list[str] = []

    def see(self, piece: Piece) -> None:
        """The next one."""
        ends = piece.ends if piece.is_closed else piece.ends[:-1]
        last = piece.values[ends - 1]
        wrong = np.flatnonzero(last != self.eod)
        self._count += len(wrong)
        for index in wrong[: max(_EXAMPLES - len(self._examples), 0)]:
            self._examples.append(f"document {int(piece.numbers[index]):,} ends with {int(last[index]):,}")

    def findings(self) -> Iterator[Finding]:
        """After the last one."""
        if self._count:
            what = f"{self._count:,} documents do not end with the token {self.eod:,}"
            yield Finding("eod", what, self._count, tuple(self._examples))
