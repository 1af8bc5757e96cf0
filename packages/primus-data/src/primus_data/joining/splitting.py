"""Split a prefix by documents: each goes whole to one part, and keeps its place among the documents of that part."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from primus_data.indexed.described import write_derived
from primus_data.indexed.layout import Layout
from primus_data.indexed.reader import Indexed
from primus_data.indexed.streams import Piece, Streams, damaged, pieces
from primus_data.indexed.writer import IndexedWriter
from primus_data.joining.output import expect_room, refuse_existing, written
from primus_data.joining.selection import Range, Selection, by_shares, up_to
from primus_data.progress import Progress
from primus_machine.errors import RequestError

__all__ = ["Part", "Wanted", "split"]


class Wanted(NamedTuple):
    """How to split: one of the three is given."""

    outputs: tuple[str, ...]
    shares: tuple[float, ...] = ()
    documents: tuple[int, int | None] | None = None
    max_tokens: int = 0
    seed: int | None = None
    """None: the first documents go to the first part, and so on."""
    by_tokens: bool = True


class Part(NamedTuple):
    """What one part got."""

    prefix: str
    documents: int
    sequences: int
    tokens: int


def split(prefix: str, wanted: Wanted) -> list[Part]:
    """Write the parts.

    Raises:
        RequestError: there is no such prefix, it has too few documents, or an output exists.
        MachineError: it is damaged, or there is no room.
    """
    refuse_existing(wanted.outputs)
    source = Indexed(prefix)
    size = len(source.tokens) * source.layout.width
    with Progress(f"splitting {os.path.basename(prefix)}", size) as progress:
        streams = Streams(prefix, source.layout)
        _expect_no_modes(streams)
        selection = _selection(streams, wanted)
        found = _tally(streams, selection, wanted.outputs)
        expect_room(os.path.dirname(wanted.outputs[0]), sum(_size(part, source.layout) for part in found))
        parts = {part.prefix: part for part in found}

        def describe(output: str) -> None:
            part = parts[output]
            size = part.tokens * source.layout.width
            write_derived("data split", [prefix], output, documents=part.documents, bytes=size)

        with written(wanted.outputs, describe) as names:
            _write(streams, selection, names, found, progress)
    return found


def _expect_no_modes(streams: Streams) -> None:
    surplus = os.path.getsize(f"{streams.prefix}.idx") - streams.layout.size
    if surplus and surplus == streams.layout.sequences:
        raise RequestError(f"'{streams.prefix}' is multimodal: its index ends in modes")


def _selection(streams: Streams, wanted: Wanted) -> Selection:
    if wanted.shares:
        return by_shares(streams, wanted.shares, wanted.seed, by_tokens=wanted.by_tokens)
    if wanted.max_tokens:
        return up_to(streams, wanted.max_tokens, wanted.seed)
    documents = max(streams.layout.bounds - 1, 0)
    first, end = wanted.documents or (0, None)
    end = documents if end is None else end
    if not first < end <= documents:
        what = f"there are no documents {first}:{end} in '{streams.prefix}'"
        raise RequestError(what, why=f"it has {documents:,} documents, counted from 0")
    return Range(first, end)


def _tally(streams: Streams, selection: Selection, outputs: Sequence[str]) -> list[Part]:
    """What each part will get."""
    documents, sequences, tokens = np.zeros((3, len(outputs)), "<i8")
    for first, bounds in streams.document_bounds():
        parts = selection.parts(np.arange(first, first + len(bounds) - 1))
        taken = parts >= 0
        documents += np.bincount(parts[taken], minlength=len(outputs))
        np.add.at(sequences, parts[taken], np.diff(bounds)[taken])
        np.add.at(tokens, parts[taken], np.diff(streams.positions(bounds))[taken])
    rows = zip(outputs, documents.tolist(), sequences.tolist(), tokens.tolist(), strict=True)
    return [Part(*row) for row in rows]


def _size(part: Part, head: Layout) -> int:
    """Bytes while it is written: lengths and bounds stand in files of their own until the index is complete."""
    index = head._replace(sequences=part.sequences, bounds=part.documents + 1)
    return part.tokens * head.width + index.size + 4 * part.sequences + 8 * part.documents


def _write(
    streams: Streams, selection: Selection, names: Sequence[str], expected: Sequence[Part], progress: Progress
) -> None:
    none = np.empty(0, "<i8")
    with ExitStack() as stack:
        writers = [stack.enter_context(IndexedWriter(name, streams.layout.code)) for name in names]
        for piece in pieces(streams.prefix, streams.tokens(), streams.token_ends()):
            for part, tokens in _by_part(piece, selection, len(writers)):
                writers[part].add(tokens, none, none)
            progress.add(piece.values.nbytes, len(piece.ends) - (not piece.is_closed))
        listed = [0] * len(writers)
        for piece in pieces(streams.prefix, streams.lengths(), streams.sequence_ends()):
            for part, lengths in _by_part(piece, selection, len(writers)):
                listed[part] += int(lengths.sum(dtype=np.int64))
                writers[part].add(none, lengths, none)
        for first, bounds in streams.document_bounds():
            parts = selection.parts(np.arange(first, first + len(bounds) - 1))
            for part, writer in enumerate(writers):
                writer.add(none, none, np.diff(bounds)[parts == part])
        for wanted, writer, count in zip(expected, writers, listed, strict=True):
            if not writer.tokens == count == wanted.tokens:
                raise damaged(streams.prefix, "its lengths and offsets contradict each other")


def _by_part(piece: Piece, selection: Selection, count: int) -> Iterator[tuple[int, NDArray[Any]]]:
    """The values of each part, in their order."""
    parts = selection.parts(piece.numbers)
    if len(parts) and (parts == parts[0]).all():
        if parts[0] >= 0:
            yield int(parts[0]), piece.values
        return
    of_value = np.repeat(parts.astype("<i4"), piece.sizes)
    for part in range(count):
        yield part, piece.values[of_value == part]
