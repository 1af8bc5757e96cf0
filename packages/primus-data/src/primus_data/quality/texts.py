"""Documents in files: JSONL that somebody gives (plain, .gz, .zst), and what one stage leaves to the next."""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import IO, Any, NamedTuple

import orjson

from primus_core.errors import PrimusError
from primus_data.sources import lines as sources
from primus_data.sources.files import File, unreadable

__all__ = ["Record", "between", "lines", "parsed", "rewritten", "written"]


class Record(NamedTuple):
    """A document as a line of JSON, and the line of the input that it comes from."""

    line: int
    data: bytes


def lines(file: File, start: int = 0, end: int = -1) -> Iterator[Record]:
    """The lines of a file that hold anything; of a plain one, those that begin in a range of bytes.

    Raises:
        PrimusError: it is damaged, or has changed since it was found.
    """
    try:
        with sources.opened(file) as opened:
            _look(file, opened)
            number = sources.count(file, start)
            for line in _split(file, opened, start, file.size if end < 0 else end):
                number += 1
                if line.strip():
                    yield Record(number, line.rstrip(b"\r"))
            _look(file, opened)
    except sources.Damaged as error:
        raise unreadable(file, f"it is damaged: {error}") from None
    except FileNotFoundError as error:
        raise unreadable(file, str(error.strerror)) from None


def _split(file: File, opened: IO[bytes], start: int, end: int) -> Iterator[bytes]:
    is_plain = file.kind not in ("gzip", "zstd")
    for lines, _ in sources.plain(opened, start, end) if is_plain else sources.compressed(opened, file.kind):
        yield from (line.removesuffix(b"\n") for line in lines)


def _look(file: File, opened: IO[bytes]) -> None:
    found = os.fstat(opened.fileno())
    if (found.st_size, found.st_mtime_ns) != (file.size, file.time):
        fix = "leave the input alone meanwhile; remove the unfinished folder to start over"
        raise PrimusError(f"'{file.path}' has changed since the pipeline began", fix=fix)


def between(path: str) -> Iterator[Record]:
    """What a stage has left."""
    with open(path, "rb") as file:
        for line in file:
            number, _, data = line.rstrip(b"\n").partition(b"\t")
            yield Record(int(number), data)


def parsed(data: bytes, key: str, where: str) -> tuple[dict[str, Any], str]:
    """The record, and its text.

    Raises:
        PrimusError: it is no JSON, or has no such text.
    """
    try:
        record = orjson.loads(data)
    except ValueError as error:
        raise PrimusError(f"{where}: the line is not valid JSON", why=str(error), fix=_SKIP) from None
    text = record.get(key) if isinstance(record, dict) else None
    if not isinstance(text, str):
        known = (
            f"its keys: {', '.join(map(repr, list(record)[:8]))}" if isinstance(record, dict) else "it is not an object"
        )
        raise PrimusError(
            f"{where}: the record has no text '{key}'", why=known, fix=f"name the key (`text: ...`), or {_SKIP}"
        )
    return record, text


_SKIP = "skip and count such lines with --on-error skip"


def rewritten(record: dict[str, Any], key: str, text: str) -> bytes:
    """The record with another text."""
    return orjson.dumps({**record, key: text})


@contextmanager
def written(path: str, *, is_output: bool) -> Iterator[Any]:
    """A function that adds a record; the file appears when all is written. The same records give the same bytes."""
    stage = f"{path}.partial"
    with ExitStack() as stack:
        raw = stack.enter_context(open(stage, "wb"))
        if is_output:
            file: Any = stack.enter_context(
                gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=raw, mtime=0)
            )
            yield lambda record: file.write(record.data + b"\n")
            file.close()
        else:
            yield lambda record: raw.write(b"%d\t%s\n" % record)
        raw.flush()
        os.fsync(raw.fileno())
    os.replace(stage, path)
