"""One thing to read: a log file, or text that stands for a record of another form, with what is known of its writer."""

from __future__ import annotations

import errno
import gzip
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from primus_machine.files.atomic import regular

__all__ = ["Source", "blocks"]

BLOCK = 2 << 20
_LONGEST = 1 << 16
"""Of a line without an end, so much is kept for the next block."""


@dataclass(frozen=True, slots=True)
class Source:
    """A log, and who wrote it as far as its name or place says."""

    path: str
    shown: str = ""
    """How answers name it."""
    rank: int | None = None
    node: str = ""
    text: str = ""
    """What it says, where no log file says it: a record in JSON, read before."""
    time: float | None = None
    """When that was."""
    is_late: bool = False
    """A log of the kernel or of a scheduler: what it says has the time of no rank."""
    period: tuple[float, float] | None = None
    """Leave out lines from before or after it; None: all lines count."""

    @property
    def is_record(self) -> bool:
        """Whether it is text, and no file to read."""
        return bool(self.text)


def blocks(source: Source, start: int = 0, end: int | None = None) -> Iterator[tuple[int, bytes]]:
    """The source in pieces of whole lines, each with its offset. `start` and `end` are offsets of whole lines' parts:
    the piece begins behind the first line end after `start`, and ends with the line that `end` is in.

    A line of gigabytes comes in pieces that overlap. What is written while it is read is left out, and so are holes.

    Raises:
        OSError: it cannot be read.
    """
    if source.is_record:
        yield 0, source.text.encode("utf-8", "replace")
        return
    with _opened(source.path) as file:
        size = None if source.path.endswith(".gz") else os.fstat(file.fileno()).st_size
        offset = _begin(file, start, end)
        if end is None or offset < end:
            yield from _pieces(file, offset, end, size)


def _opened(path: str) -> BinaryIO:
    file = open(path, "rb", buffering=0, opener=regular)
    if path.endswith(".gz"):
        return gzip.GzipFile(fileobj=file)  # type: ignore[return-value]  # reads as a file does
    return file


def _begin(file: BinaryIO, start: int, end: int | None) -> int:
    """Where the first line after `start` begins; at `end` or behind it: none does before."""
    if not start:
        return 0
    offset = start - 1
    while end is None or offset < end:
        offset = file.seek(_behind_hole(file, offset))
        piece = file.read(_LONGEST)
        at = piece.find(b"\n")
        if at >= 0 or not piece:
            return offset + at + 1
        offset += len(piece)
    return offset


def _pieces(file: BinaryIO, offset: int, end: int | None, size: int | None) -> Iterator[tuple[int, bytes]]:
    """From `offset` to the end of the line that `end` is in. `size`: of a plain file; None: it is compressed."""
    rest = b""
    while True:
        at, data = _read(file, offset + len(rest), size)
        if at > offset + len(rest):
            if rest:
                yield offset, rest
            rest, offset = b"", at
        if not data:
            break
        data = rest + data  # what is left of the last piece belongs to this one
        if end is not None and offset + len(data) >= end:
            last = data.find(b"\n", max(end - offset - 1, 0))
            if last >= 0:
                yield offset, data[: last + 1]
                return
        cut = data.rfind(b"\n") + 1 or max(len(data) - _LONGEST, 0)
        if cut:
            yield offset, data[:cut]
        rest, offset = data[cut:], offset + cut
    if rest:
        yield offset, rest


def _read(file: BinaryIO, at: int, size: int | None) -> tuple[int, bytes]:
    """The next bytes, behind a hole that begins there, and where they are."""
    if size is None:
        return at, file.read(BLOCK)
    found = _behind_hole(file, at)
    file.seek(found)
    return found, file.read(max(min(BLOCK, size - found), 0))


def _behind_hole(file: BinaryIO, at: int) -> int:
    """Where the next byte of a file is that was written: a file of terabytes may hold none."""
    try:
        return os.lseek(file.fileno(), at, os.SEEK_DATA)
    except OSError as error:  # nothing follows, or the file system knows no holes
        return os.lseek(file.fileno(), 0, os.SEEK_END) if error.errno == errno.ENXIO else at


def size_of(path: str) -> int:
    """Bytes of a file; 0: it cannot be seen."""
    try:
        return os.path.getsize(path)
    except OSError:
        return 0
