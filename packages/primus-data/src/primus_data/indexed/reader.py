"""Read `PREFIX.bin` and `PREFIX.idx`: memory-mapped, so that an index of 100 GB opens at once."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from primus_data.indexed import layout
from primus_data.indexed.nearby import correct_prefix
from primus_machine.errors import MachineError, RequestError

__all__ = ["Indexed"]


class Indexed:
    """A prefix, opened. `lengths`, `offsets` and `bounds` are views of the file: slice them before computing."""

    def __init__(self, prefix: str) -> None:
        """Open it.

        Raises:
            RequestError: there is no such prefix.
            MachineError: the files cannot be read, or are damaged.
        """
        self.prefix = prefix
        for path in (f"{prefix}.idx", f"{prefix}.bin"):
            if not os.path.exists(path):
                raise RequestError(f"file '{path}' not found", fix=correct_prefix(prefix))
        try:
            self.layout = self._read()
            with open(f"{prefix}.bin", "rb", opener=layout.regular) as file:
                size = os.fstat(file.fileno()).st_size
            self.lengths = self._column(self.layout.lengths_at, self.layout.sequences, "<i4")
            self.offsets = self._column(self.layout.offsets_at, self.layout.sequences, "<i8")
            self.bounds = self._column(self.layout.documents_at, self.layout.bounds, "<i8")
        except OSError as error:
            raise MachineError(f"'{error.filename or prefix}' cannot be read", why=str(error.strerror)) from None
        self.tokens: NDArray[Any] = np.empty(0, self.layout.type)
        if size >= self.layout.width:
            self.tokens = np.memmap(f"{prefix}.bin", self.layout.type, "r", shape=(size // self.layout.width,))

    def _read(self) -> layout.Layout:
        found = layout.read(self.prefix)
        if isinstance(found, str):
            raise MachineError(found, fix="prepare the data again, or copy it again")
        return found

    def _column(self, at: int, count: int, kind: str) -> NDArray[Any]:
        if not count:
            return np.empty(0, kind)
        return np.memmap(f"{self.prefix}.idx", kind, "r", at, (count,))

    @property
    def documents(self) -> int:
        """How many."""
        return max(self.layout.bounds - 1, 0)

    def document(self, number: int) -> NDArray[Any]:
        """The tokens of a document, all its sequences in a row."""
        first, end = int(self.bounds[number]), int(self.bounds[number + 1])
        if first == end:
            return self.tokens[:0]
        start = int(self.offsets[first]) // self.layout.width
        return self.tokens[start : start + int(self.lengths[first:end].sum(dtype=np.int64))]

    def blocks(self, size: int) -> Iterator[NDArray[Any]]:
        """All tokens, so many at a time."""
        for start in range(0, len(self.tokens), size):
            yield self.tokens[start : start + size]
