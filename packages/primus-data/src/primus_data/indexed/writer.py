"""Write `PREFIX.bin` and `PREFIX.idx` as a stream: memory stays the same, however many tokens and documents come."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from types import TracebackType
from typing import IO, Any, Self

import numpy as np
from numpy.typing import NDArray

from primus_data.indexed.layout import TYPES, Layout

__all__ = ["IndexedWriter"]

_AT_ONCE = 1 << 16
"""Numbers of an index that are copied at a time."""
_PIECE, _BLOCK = 64 << 20, 8 << 20
"""Bytes of tokens that are copied at a time, by the file system, or through memory where it cannot."""
_NO_COPIES = (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)
"""The errors of a file system, or of two, that do not copy from file to file."""


class IndexedWriter:
    """Writes under a name of the caller, who renames what is whole. The index comes last: with it, both are whole."""

    def __init__(self, prefix: str, code: int) -> None:
        self.prefix, self.code = prefix, code
        self.type = np.dtype(f"<{TYPES[code]}")
        self.sequences = self.documents = self.tokens = self._bound = 0
        with ExitStack() as stack:  # a disk that is full closes those that are open
            files = [stack.enter_context(open(path, "wb")) for path in (f"{prefix}.bin", *self._columns())]
            self._stack = stack.pop_all()
        self.bin, self._lengths, self._bounds = files

    def _columns(self) -> tuple[str, str]:
        return f"{self.prefix}.lengths", f"{self.prefix}.bounds"

    def add(self, tokens: NDArray[Any], lengths: NDArray[Any], counts: NDArray[Any]) -> None:
        """Documents: all their tokens, the tokens of each sequence, and the sequences of each document.

        An empty document has 0 sequences. Each of the three is a stream of its own: they may come apart.
        """
        _write(self.bin, tokens.astype(self.type, copy=False))
        _write(self._lengths, lengths.astype("<i4", copy=False))
        bounds = np.cumsum(counts, dtype="<i8") + self._bound
        _write(self._bounds, bounds)
        self.tokens += len(tokens)
        self.sequences += len(lengths)
        self.documents += len(counts)
        self._bound = int(bounds[-1]) if len(bounds) else self._bound

    def copy(self, tokens: IO[bytes], size: int) -> Iterator[int]:
        """So many bytes of tokens, from a file that has no other use: the sizes of the pieces, as they are copied.

        The file system copies them where it can. A file that ends earlier gives fewer.
        """
        self.bin.flush()
        left = size
        while left > 0 and (copied := _copied(tokens.fileno(), self.bin.fileno(), min(left, _PIECE))):
            left -= copied
            yield copied
        self.tokens += (size - left) // self.type.itemsize

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            if error is None:
                _sync(self.bin)
                self._stack.close()
                self._write_index()
        finally:
            with suppress(OSError):  # a full disk says so once more; the first error counts
                self._stack.close()
            for path in self._columns():
                with suppress(FileNotFoundError):
                    os.unlink(path)

    def _write_index(self) -> None:
        layout = Layout(self.code, self.sequences, self.documents + 1)
        lengths, bounds = self._columns()
        with open(f"{self.prefix}.idx", "wb") as index:
            index.write(layout.head)
            with open(lengths, "rb") as file:
                _copy(file, index)
                file.seek(0)
                self._write_offsets(file, index, layout.width)
            index.write(bytes(8))  # the first document begins with sequence 0
            with open(bounds, "rb") as file:
                _copy(file, index)
            _sync(index)

    @staticmethod
    def _write_offsets(lengths: IO[bytes], index: IO[bytes], width: int) -> None:
        at = 0
        while data := lengths.read(4 * _AT_ONCE):
            sizes = np.frombuffer(data, "<i4").astype("<i8") * width
            ends = np.cumsum(sizes) + at
            _write(index, ends - sizes)
            at = int(ends[-1])


def _write(file: IO[bytes], values: NDArray[Any]) -> None:
    file.write(np.ascontiguousarray(values).data)


def _copy(source: IO[bytes], target: IO[bytes]) -> None:
    while data := source.read(8 * _AT_ONCE):
        target.write(data)


def _copied(source: int, target: int, size: int) -> int:
    """How many bytes were copied; 0: the source has no more."""
    try:
        return os.copy_file_range(source, target, size)
    except OSError as error:
        if error.errno not in _NO_COPIES:
            raise
    data = os.read(source, min(size, _BLOCK))
    left = memoryview(data)
    while left:
        left = left[os.write(target, left) :]
    return len(data)


def _sync(file: IO[bytes]) -> None:
    file.flush()
    os.fsync(file.fileno())
