"""Join prefixes to one, in their order, as a stream: memory stays the same, however large they are."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from primus_data.indexed import layout
from primus_data.indexed.layout import Layout
from primus_data.indexed.nearby import correct_prefix
from primus_data.indexed.writer import IndexedWriter
from primus_machine.errors import MachineError, RequestError

__all__ = ["join", "publish"]

_DOCUMENTS = 1 << 16
"""So many documents of an index at a time."""


def join(
    prefixes: Sequence[str], prefix: str, advance: Callable[[int, int], object] = lambda size, count: None
) -> None:
    """Write the documents of all `prefixes`, of which there is at least one, to `<prefix>.bin` and `<prefix>.idx`.

    `advance` is told the bytes and the documents that were copied.

    As with `IndexedWriter`, the name is one of the caller's, who renames what is whole (`publish`).

    Raises:
        RequestError: their tokens differ in size, or they are multimodal.
        MachineError: one of them is damaged, or cannot be read.
        OSError: the result cannot be written.
    """
    sources = {one: _read(one) for one in prefixes}
    first, found = next(iter(sources.items()))
    for one, other in sources.items():
        if other.code != found.code:
            why = f"a token has {other.width * 8} bits in {one}, and {found.width * 8} in {first}"
            raise RequestError(f"{one} cannot be joined with {first}", why=why, fix="prepare both with one tokenizer")
    with IndexedWriter(prefix, found.code) as writer:
        for one in prefixes:
            _append(one, sources[one], writer, advance)


def publish(written: str, prefix: str) -> None:
    """Give a prefix that is whole its final name: the index comes last, and with it, both are there.

    Raises:
        OSError: they cannot be renamed.
    """
    os.replace(f"{written}.bin", f"{prefix}.bin")
    os.replace(f"{written}.idx", f"{prefix}.idx")
    descriptor = os.open(os.path.dirname(prefix) or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _read(prefix: str) -> Layout:
    try:
        found = layout.read(prefix)
        if isinstance(found, str):
            raise _damaged(prefix, found)
        if os.path.getsize(f"{prefix}.idx") != found.size:
            raise RequestError(f"{prefix} cannot be joined", why="its index has more than lengths and documents")
    except FileNotFoundError as error:
        raise RequestError(f"file '{error.filename}' not found", fix=correct_prefix(prefix)) from None
    except OSError as error:
        raise MachineError(f"'{error.filename or prefix}' cannot be read", why=str(error.strerror)) from None
    return found


def _append(prefix: str, found: Layout, writer: IndexedWriter, advance: Callable[[int, int], object]) -> None:
    none = np.empty(0, "<i8")
    before = writer.tokens
    with open(f"{prefix}.bin", "rb") as file:
        for size in writer.copy(file, os.path.getsize(f"{prefix}.bin") // found.width * found.width):
            advance(size, 0)
    listed = 0
    with open(f"{prefix}.idx", "rb") as index:
        for lengths, counts in _documents(prefix, index, found):
            listed += int(lengths.sum(dtype=np.int64))
            writer.add(none, lengths, counts)
            advance(0, len(counts))
    if listed != (tokens_there := writer.tokens - before):
        raise _damaged(prefix, f"{prefix}.bin has {tokens_there} tokens, and its index lists {listed}")


def _documents(prefix: str, index: IO[bytes], found: Layout) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    """The lengths of sequences, and how many of them each document has, some documents at a time."""
    last = 0
    for start in range(0, found.bounds - 1, _DOCUMENTS):
        index.seek(found.documents_at + 8 * start)
        bounds = np.frombuffer(index.read(8 * min(_DOCUMENTS + 1, found.bounds - start)), "<i8")
        counts = np.diff(bounds)
        if int(bounds[0]) != last or (counts < 0).any() or int(bounds[-1]) > found.sequences:
            raise _damaged(prefix, f"the documents in {prefix}.idx are in no order")
        index.seek(found.lengths_at + 4 * last)
        last = int(bounds[-1])
        yield np.frombuffer(index.read(4 * (last - int(bounds[0]))), "<i4"), counts
    if last != found.sequences:
        raise _damaged(prefix, f"{prefix}.idx has {found.sequences} sequences, and {last} in documents")


def _damaged(prefix: str, why: str) -> MachineError:
    return MachineError(f"{prefix} is damaged", why=why, fix="prepare the data again, or copy it again")
