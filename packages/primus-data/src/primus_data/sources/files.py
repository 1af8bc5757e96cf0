"""The files that `--input` names: paths, patterns and folders, in the order of their documents."""

from __future__ import annotations

import glob
import os
import stat
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from primus_core.errors import Mistakes, PrimusError, RequestError
from primus_machine.text import printable

__all__ = ["KINDS", "File", "Kind", "changed", "find", "place", "unreadable"]

Kind = Literal["lines", "gzip", "zstd", "parquet", "text"]
_KINDS: tuple[tuple[str, Kind], ...] = (
    (".jsonl", "lines"),
    (".json", "lines"),
    (".gz", "gzip"),
    (".zst", "zstd"),
    (".parquet", "parquet"),
    (".txt", "text"),
)
KINDS = frozenset(suffix for suffix, _ in _KINDS)
"""How names of inputs end; others are read as JSON lines, too."""
_DATA = (".jsonl", ".gz", ".zst", ".parquet")
"""What makes a folder one of data files."""
_PATTERN = "*?["


class File(NamedTuple):
    """A file of the input, as it was when it was found."""

    path: str
    kind: Kind
    size: int
    time: int
    """When it last changed, in nanoseconds."""


def find(words: Sequence[str], links: list[str] | None = None) -> tuple[File, ...]:
    """The files, those of a pattern or folder sorted by path. A folder that holds data files gives these; one that
    holds none gives each of its files as one document. A link to a file that is read already is left out: into `links`.

    Raises:
        RequestError: one is not there, cannot be read, or is named twice; all of them at once.
    """
    mistakes, found, places = Mistakes(), dict[str, File](), set[tuple[int, int]]()
    for word in words:
        with mistakes:
            for file in _named(word):
                if file.path in found:
                    raise RequestError(f"--input: '{printable(file.path)}' is named twice", fix="name each file once")
                about = os.stat(file.path)
                if (place := (about.st_dev, about.st_ino)) not in places:
                    found[file.path] = file
                elif links is not None:
                    links.append(printable(file.path))
                places.add(place)
    mistakes.refuse()
    return tuple(found.values())


def _named(word: str) -> Iterator[File]:
    if os.path.lexists(word) or not any(char in word for char in _PATTERN):
        yield from _below(word) if os.path.isdir(word) else (_file(word, _kind(word)),)
        return
    paths = sorted(glob.glob(word, recursive=True))
    if not paths:
        raise RequestError(f"--input: no file matches '{printable(word)}'", fix="check the path and the pattern")
    for path in paths:
        if not os.path.isdir(path):
            yield _file(path, _kind(path))


def _below(folder: str) -> Iterator[File]:
    """The files of a folder, hidden ones apart. Beside other data, a .json file describes it."""
    paths = sorted(
        os.path.join(where, name)
        for where, _, names in os.walk(folder)
        if not _is_hidden(where, folder)
        for name in names
        if not name.startswith(".")
    )
    data = [path for path in paths if path.endswith(_DATA)] or [path for path in paths if path.endswith(".json")]
    if not paths:
        raise RequestError(f"--input: no file in the folder '{printable(folder)}'", fix="check the path")
    for path in data or paths:
        yield _file(path, _kind(path) if data else "text")


def place(word: str) -> str:
    """Where the files of a word are: a path; of a pattern, the folder above all that it matches."""
    if os.path.lexists(word) or not any(char in word for char in _PATTERN):
        return word
    parts = word.split("/")
    first = next(number for number, part in enumerate(parts) if any(char in part for char in _PATTERN))
    return "/".join(parts[:first]) or ("/" if word.startswith("/") else ".")


def _is_hidden(where: str, folder: str) -> bool:
    return any(part.startswith(".") and part != "." for part in os.path.relpath(where, folder).split(os.sep))


def _kind(path: str) -> Kind:
    """By its name; Megatron's tool takes any name for JSON lines."""
    return next((kind for end, kind in _KINDS if path.endswith(end)), "lines")


def _file(path: str, kind: Kind) -> File:
    name = printable(path)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if isinstance(error, FileNotFoundError):
            raise RequestError(f"--input: file '{name}' not found", fix="check the path") from None
        fix = "run as somebody who may read it" if isinstance(error, PermissionError) else "check the file"
        raise RequestError(f"--input: '{name}' cannot be read", why=str(error.strerror), fix=fix) from None
    found = os.fstat(descriptor)
    os.close(descriptor)
    if not stat.S_ISREG(found.st_mode):
        raise RequestError(f"--input: '{name}' is not a regular file", fix="name a file, a pattern or a folder")
    return File(path, kind, found.st_size, found.st_mtime_ns)


def changed(file: File, found: os.stat_result) -> PrimusError | None:
    """The error for a file that is no longer what was found."""
    if (found.st_size, found.st_mtime_ns) == (file.size, file.time):
        return None
    why = f"it had {file.size} bytes, and has {found.st_size}" if found.st_size != file.size else "its time differs"
    fix = "leave the input alone meanwhile, and start over: --discard-unfinished"
    return PrimusError(f"'{printable(file.path)}' changed while it was prepared", why=why, fix=fix)


def unreadable(file: File, why: str) -> PrimusError:
    """The error for a file that was found, and cannot be read any more."""
    return PrimusError(
        f"'{printable(file.path)}' cannot be read",
        why=why,
        fix="bring it back, and run the command again: finished parts are kept",
    )
