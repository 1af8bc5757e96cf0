"""An index and its tokens as streams: memory stays the same, whatever their size."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from primus_data.indexed.layout import Layout
from primus_machine.errors import MachineError

__all__ = ["Piece", "Streams", "damaged", "pieces"]

_AT_ONCE = 1 << 20
"""Numbers that are read at a time."""
_DOCUMENTS_AT_ONCE = 1 << 16
Ends = Iterator[tuple[NDArray[Any], NDArray[Any]]]
"""Documents that are not empty: their numbers, and where each ends."""


def damaged(prefix: str, why: str) -> MachineError:
    """The error for an index that contradicts itself."""
    return MachineError(
        f"the index '{prefix}.idx' is damaged", why=why, fix=f"list all faults: primus data verify {prefix}"
    )


class Streams:
    """The columns of a prefix whose head is valid. `advance` is told the bytes that were read."""

    def __init__(self, prefix: str, layout: Layout, advance: Callable[[int], object] = lambda _: None) -> None:
        self.prefix, self.layout, self.advance = prefix, layout, advance
        self.total = os.path.getsize(f"{prefix}.bin") // layout.width
        """Tokens in the data."""

    def _read(self, suffix: str, at: int, count: int, kind: str) -> Iterator[NDArray[Any]]:
        path = f"{self.prefix}{suffix}"
        with open(path, "rb", buffering=0) as file:
            file.seek(at)
            while count > 0:
                block = np.fromfile(file, kind, min(count, _AT_ONCE))
                if not len(block):
                    raise MachineError(f"'{path}' became shorter while it was read")
                self.advance(block.nbytes)
                count -= len(block)
                yield block

    def lengths(self) -> Iterator[NDArray[Any]]:
        """Tokens of each sequence."""
        return self._read(".idx", self.layout.lengths_at, self.layout.sequences, "<i4")

    def offsets(self) -> Iterator[NDArray[Any]]:
        """Byte in the data at which each sequence begins."""
        return self._read(".idx", self.layout.offsets_at, self.layout.sequences, "<i8")

    def bounds(self) -> Iterator[NDArray[Any]]:
        """Sequence with which each document begins, and their number."""
        return self._read(".idx", self.layout.documents_at, self.layout.bounds, "<i8")

    def tokens(self) -> Iterator[NDArray[Any]]:
        """All of them."""
        return self._read(".bin", 0, self.total, self.layout.type)

    def positions(self, sequences: NDArray[Any]) -> NDArray[Any]:
        """Token with which each of these sequences begins; behind the last one: their number.

        Raises:
            MachineError: there is no such sequence, or it begins outside the data.
        """
        count = self.layout.sequences
        if len(sequences) and not 0 <= int(sequences.min()) <= int(sequences.max()) <= count:
            raise damaged(self.prefix, f"a document begins with a sequence that is none of the {count:,}")
        found = np.full(len(sequences), self.total, "<i8")
        inside = sequences < count
        if inside.any():
            found[inside] = self._offsets(sequences[inside]) // self.layout.width
        if len(found) and not 0 <= int(found.min()) <= int(found.max()) <= self.total:
            raise damaged(self.prefix, "a sequence begins outside the data")
        return found

    def _offsets(self, sequences: NDArray[Any]) -> NDArray[Any]:
        """Read where they lie close together; mapped for a moment otherwise, so that no memory is kept."""
        first, last = int(sequences.min()), int(sequences.max())
        path, at = f"{self.prefix}.idx", self.layout.offsets_at
        if last - first < 2 * _DOCUMENTS_AT_ONCE:
            near = self.at(at + 8 * first, last - first + 1)
            if len(near) <= last - first:
                raise MachineError(f"'{path}' became shorter while it was read")
            return np.asarray(near[sequences - first])
        offsets = np.memmap(path, "<i8", "r", at, (self.layout.sequences,))
        return np.array(offsets[sequences])

    def at(self, place: int, count: int) -> NDArray[Any]:
        """Numbers of the index of 8 bytes, from a byte on."""
        with open(f"{self.prefix}.idx", "rb", buffering=0) as file:
            file.seek(place)
            return np.fromfile(file, "<i8", count)

    def document_bounds(self) -> Iterator[tuple[int, NDArray[Any]]]:
        """Documents, some at a time: the number of the first, and their bounds with the end of the last.

        Raises:
            MachineError: they do not ascend.
        """
        for first in range(0, self.layout.bounds - 1, _DOCUMENTS_AT_ONCE):
            count = min(_DOCUMENTS_AT_ONCE, self.layout.bounds - 1 - first)
            found = self.at(self.layout.documents_at + 8 * first, count + 1)
            if len(found) <= count or np.any(found[1:] < found[:-1]):
                raise damaged(self.prefix, "the bounds of its documents do not ascend")
            yield first, found

    def sequence_ends(self) -> Ends:
        """In sequences."""
        for first, bounds in self.document_bounds():
            yield _without_empty(first, bounds)

    def token_ends(self) -> Ends:
        """In tokens."""
        for first, bounds in self.document_bounds():
            positions = self.positions(bounds)
            if np.any(positions[1:] < positions[:-1]):
                raise damaged(self.prefix, "the offsets of its sequences do not ascend")
            yield _without_empty(first, positions)


def _without_empty(first: int, bounds: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    kept = np.flatnonzero(bounds[1:] > bounds[:-1])
    return kept + first, bounds[1:][kept]


class Piece(NamedTuple):
    """Values in a row, and the documents that they belong to."""

    at: int
    """Place of the first value among all."""
    began: int
    """Place where the first document of the piece begins, which may be in an earlier piece."""
    values: NDArray[Any]
    numbers: NDArray[Any]
    """Of the documents."""
    ends: NDArray[Any]
    """Where each ends in `values`; the last may go on in the next piece."""
    is_closed: bool
    """The last one ends with the piece."""

    @property
    def sizes(self) -> NDArray[Any]:
        """Values of each document in this piece."""
        return np.diff(self.ends, prepend=0)

    def document_at(self, index: int) -> tuple[int, int]:
        """The document that a value belongs to, and its place in it."""
        which = int(np.searchsorted(self.ends, index, "right"))
        start = self.at + int(self.ends[which - 1]) if which else self.began
        return int(self.numbers[which]), self.at + index - start


def pieces(prefix: str, blocks: Iterator[NDArray[Any]], ends: Ends) -> Iterator[Piece]:
    """Blocks of values, with the documents that they belong to.

    Raises:
        MachineError: values belong to no document.
    """
    at = began = 0
    numbers, ahead = np.empty(0, "<i8"), np.empty(0, "<i8")
    for values in blocks:
        stop = at + len(values)
        while not (len(ahead) and ahead[-1] >= stop):
            if (more := next(ends, None)) is None:
                raise damaged(prefix, "its documents end before the data does")
            numbers, ahead = np.concatenate([numbers, more[0]]), np.concatenate([ahead, more[1]])
        count = int(np.searchsorted(ahead, stop, "right"))
        is_closed = count > 0 and int(ahead[count - 1]) == stop
        taken = count if is_closed else count + 1
        yield Piece(at, began, values, numbers[:taken], np.minimum(ahead[:taken], stop) - at, is_closed)
        began = int(ahead[count - 1]) if count else began
        numbers, ahead, at = numbers[count:], ahead[count:], stop
