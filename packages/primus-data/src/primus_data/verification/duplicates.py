"""Documents with the same tokens, by a hash of them; where many documents differ, among a known share of them."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from primus_data.indexed.streams import Piece
from primus_data.verification.findings import Finding

__all__ = ["BYTES_EACH", "Duplicates"]

BYTES_EACH = 112
"""Memory that a document needs: four numbers in the table, and what sorting them takes meanwhile."""
_HASH_BYTES = 8
_EXAMPLES = 3


class Duplicates:
    """A table of hashes, with how often each was seen. It never has more rows than `memory` holds: before it would, the
    hashes that `share` does not divide are left out. All copies of a document have one hash: all are kept, or none.
    """

    def __init__(self, memory: int, allowed: float = 0.0) -> None:
        self.share, self.allowed = 1, allowed
        """`allowed`: share of the documents that may be duplicates."""
        self._most = max(memory // BYTES_EACH, 1)
        self._hashes = np.empty(0, "<u8")
        self._counts, self._firsts, self._lasts = (np.empty(0, "<i8") for _ in range(3))
        self._new: list[tuple[NDArray[Any], NDArray[Any]]] = []
        self._waiting = self._seen = 0
        self._open = blake2b(digest_size=_HASH_BYTES)

    def see(self, piece: Piece) -> None:
        """The next one."""
        view, width = np.ascontiguousarray(piece.values).data.cast("B"), piece.values.itemsize
        ends, start, digests = (piece.ends * width).tolist(), 0, bytearray()
        for end in ends if piece.is_closed else ends[:-1]:
            self._open.update(view[start:end])
            digests += self._open.digest()
            self._open, start = blake2b(digest_size=_HASH_BYTES), end
        self._open.update(view[start:])
        self._keep(np.frombuffer(digests, "<u8"), piece.numbers[: len(digests) // _HASH_BYTES])

    def _keep(self, hashes: NDArray[Any], numbers: NDArray[Any]) -> None:
        self._seen += len(numbers)
        step = max(self._most // 4, 1)
        for at in range(0, len(hashes), step):
            kept = hashes[at : at + step] % np.uint64(self.share) == 0
            self._new.append((hashes[at : at + step][kept], numbers[at : at + step][kept]))
            self._waiting += int(np.count_nonzero(kept))
            if self._waiting >= step:
                self._merge()

    def _merge(self) -> None:
        """Bring what is new into the table, which is sorted by hash."""
        hashes = np.concatenate([self._hashes, *(new for new, _ in self._new)])
        order = np.argsort(hashes, kind="stable")  # of equal ones, the document that comes first stays first
        hashes = hashes[order]
        starts = np.flatnonzero(np.concatenate([[True], hashes[1:] != hashes[:-1]])[: len(hashes)])
        self._hashes = hashes[starts]
        numbers = [new for _, new in self._new]
        ones = np.ones(self._waiting, "<i8")
        self._counts = _reduced(np.add, [self._counts, ones], order, starts)
        self._firsts = _reduced(np.minimum, [self._firsts, *numbers], order, starts)
        self._lasts = _reduced(np.maximum, [self._lasts, *numbers], order, starts)
        self._new, self._waiting = [], 0
        while len(self._hashes) > self._most:
            self._halve()

    def _halve(self) -> None:
        self.share *= 2
        kept = self._hashes % np.uint64(self.share) == 0
        self._hashes, self._counts = self._hashes[kept], self._counts[kept]
        self._firsts, self._lasts = self._firsts[kept], self._lasts[kept]

    def findings(self) -> Iterator[Finding]:
        """After the last one."""
        self._merge()
        count = int(self._counts.sum() - len(self._counts)) * self.share
        if not count or count <= self.allowed * self._seen:
            return
        about = "about " if self.share > 1 else ""
        what = f"{about}{count:,} documents ({min(count / self._seen, 1):.2%}) repeat an earlier one"
        yield Finding("duplicates", what, count, tuple(self._examples()))

    def _examples(self) -> Iterator[str]:
        for row in np.argsort(-self._counts, kind="stable")[:_EXAMPLES]:
            first, last, count = int(self._firsts[row]), int(self._lasts[row]), int(self._counts[row])
            if count == 2:
                yield f"documents {first:,} and {last:,} are the same"
            elif count > 2:
                yield f"{count:,} documents are the same, the first is {first:,}, the last is {last:,}"


def _reduced(reduce: np.ufunc, columns: list[NDArray[Any]], order: NDArray[Any], starts: NDArray[Any]) -> NDArray[Any]:
    """One value for each hash."""
    values = np.concatenate(columns)[order]
    return np.asarray(reduce.reduceat(values, starts)) if len(values) else values
