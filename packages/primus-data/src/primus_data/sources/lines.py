"""Whole lines of a file, some megabytes at a time, however long a single line is."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterator
from io import BytesIO
from typing import IO

from primus_core.errors import MachineError
from primus_data.sources.files import File

__all__ = ["BLOCK", "Damaged", "compressed", "count", "opened", "pieces", "plain"]

BLOCK = 4 << 20
"""Bytes of text at a time."""
_LONGEST = 1 << 30
"""Bytes of a line: a longer one is no document, and would fill the memory."""
_PIECE = 1 << 20
_SQUEEZED = 1 << 14
"""Compressed bytes at a time: they may become a thousand times as many."""

Lines = tuple[list[bytes], int]
"""Whole lines with their ends, which the last one of a file may lack, and the bytes of the file read for them."""


class Damaged(Exception):  # noqa: N818  # it names what happened; the caller says in which file
    """Compressed data that ends too early, or is none; a line without an end."""


def plain(file: IO[bytes], start: int, end: int) -> Iterator[Lines]:
    """The lines that begin in a range of bytes. So each line of a file is in exactly one range.

    Raises:
        Damaged: a line is too long.
    """
    if start:
        file.seek(start - 1)
        while (skipped := file.readline(_PIECE)) and not skipped.endswith(b"\n"):
            pass
    at, rest = file.tell(), list[bytes]()
    while at < end and (data := file.read(min(BLOCK, end - at))):
        at += len(data)
        size, rows = sum(map(len, rest)) + len(data), _split(data)
        del data  # while its lines are encoded, nobody needs it
        rest.append(rows[0])
        if rows[0].endswith(b"\n"):
            rows[0], rest = b"".join(rest), [] if rows[-1].endswith(b"\n") else [rows.pop()]
            yield rows, size - sum(map(len, rest))
        else:
            _expect_short(size)
    if any(rest):
        rest.append(file.readline(_LONGEST))
        _expect_short(size := sum(map(len, rest)))
        yield [_taken(rest)], size


def _expect_short(size: int) -> None:
    if size >= _LONGEST:
        raise Damaged(f"a line is longer than {_LONGEST >> 30} GiB")


def _split(data: bytes) -> list[bytes]:
    return BytesIO(data).readlines()  # in half the time of `split`


def _taken(pieces: list[bytes]) -> bytes:
    """The pieces as one. They go: while a long document is encoded, it is not kept twice."""
    whole = b"".join(pieces)
    pieces.clear()
    return whole


def compressed(file: IO[bytes], kind: str) -> Iterator[Lines]:
    """The lines of a file that was compressed by gzip or zstd, also piece after piece.

    Raises:
        Damaged: its end is missing, something else is in it, or a line is too long.
        MachineError: what reads it is not installed.
    """
    rest, size, read = list[bytes](), 0, 0
    for piece in pieces(file, kind):
        rest.append(piece)
        size += len(piece)
        if size >= BLOCK and (cut := piece.rfind(b"\n") + 1):
            rest[-1] = piece[:cut]
            yield _split(_taken(rest)), file.tell() - read
            rest, size, read = [piece[cut:]], len(piece) - cut, file.tell()
        _expect_short(size)
    if size:
        yield _split(_taken(rest)), file.tell() - read


def pieces(file: IO[bytes], kind: str) -> Iterator[bytes]:
    """The content of a file, which is "gzip", "zstd", or as it is, some megabytes at a time.

    Raises:
        Damaged: its end is missing, or something else is in it.
        MachineError: what reads it is not installed.
    """
    if kind in ("gzip", "zstd"):
        yield from _gunzipped(file) if kind == "gzip" else _unzstd(file)
        return
    while data := file.read(BLOCK):
        yield data


def _gunzipped(file: IO[bytes]) -> Iterator[bytes]:
    try:
        with gzip.GzipFile(fileobj=file) as opened:
            while piece := opened.read(_PIECE):
                yield piece
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise Damaged(str(error)) from None


def _unzstd(file: IO[bytes]) -> Iterator[bytes]:
    """Frame after frame: the library's own reader would take a file that was cut off for a whole one."""
    try:
        import zstandard
    except ImportError:
        fix = "pip install 'primus-data[zstd]'"
        raise MachineError("Python module 'zstandard' not found", why="it reads .zst files", fix=fix) from None
    frame, begun = zstandard.ZstdDecompressor().decompressobj(), False
    try:
        while data := file.read(_SQUEEZED):
            while data:
                begun = True
                if piece := frame.decompress(data):
                    yield piece
                data = frame.unused_data if frame.eof else b""
                if frame.eof:
                    frame, begun = zstandard.ZstdDecompressor().decompressobj(), False
    except zstandard.ZstdError as error:
        raise Damaged(str(error)) from None
    if begun:
        raise Damaged("the end of the file is missing")


def count(file: File, start: int) -> int:
    """How many lines of a plain file come before the first one that begins in the range from `start` on."""
    if not start:
        return 0
    found, left = 1, start - 1  # `plain` skips a line from the byte before
    with opened(file) as source:
        while left > 0 and (data := source.read(min(_PIECE, left))):
            found += data.count(b"\n")
            left -= len(data)
    return found


def opened(file: File) -> IO[bytes]:
    """The file, opened so that a FIFO put in its place is not waited for.

    Raises:
        OSError: it cannot be opened.
    """
    return open(file.path, "rb", opener=lambda path, flags: os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC))
