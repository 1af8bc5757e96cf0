"""The files that `--input` names: paths, patterns and folders, in the order of their documents."""

from __future__ import annotations

import glob
import os
import stat
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from primus_core.errors import Mistakes, PrimusError, RequestError
from primus_data.sources.walk import LINKS_TO_NOTHING, READ_ALREADY, LeftOut, links_to_nothing, visible_files
from primus_machine.text import printable

__all__ = ["KINDS", "MANIFEST", "File", "Kind", "changed", "find", "place", "unreadable"]

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
MANIFEST = "manifest.json"
"""What `data fetch` says of its files, beside them."""
_PATTERN = "*?["


class File(NamedTuple):
    """A file of the input, as it was when it was found."""

    path: str
    kind: Kind
    size: int
    time: int
    """When it last changed, in nanoseconds."""


def find(words: Sequence[str], left_out: LeftOut | None = None) -> tuple[File, ...]:
    """The files, those of a pattern or folder sorted by path. A folder that holds data files gives these; one that
    holds none gives each of its files as one document. What of a folder is not read goes into `left_out`, and so do
    links to a file that is read already.

    Raises:
        RequestError: one is not there, cannot be read, or is named twice; all of them at once.
    """
    mistakes, found, left_out = Mistakes(), dict[str, File](), left_out or LeftOut()
    for word in words:
        with mistakes:
            for file in _named(word, left_out):
                if file.path in found:
                    raise RequestError(f"--input: '{printable(file.path)}' is named twice", fix="name each file once")
                found[file.path] = file
    mistakes.refuse()
    read = set[tuple[int, int]]()
    for path in sorted(found, key=os.path.islink):  # of a file and a link to it, the file is read
        about = os.stat(path)
        if (place := (about.st_dev, about.st_ino)) in read:
            left_out.add(READ_ALREADY, path)
            del found[path]
        read.add(place)
    return tuple(found.values())


def _named(word: str, left_out: LeftOut) -> Iterator[File]:
    if os.path.lexists(word) or not any(char in word for char in _PATTERN):
        yield from _below(word, left_out) if os.path.isdir(word) else (_file(word, _kind(word)),)
        return
    paths = sorted(glob.glob(word, recursive=True))
    if not paths:
        raise RequestError(f"--input: no file matches '{printable(word)}'", fix="check the path and the pattern")
    for path in paths:
        if links_to_nothing(path):
            left_out.add(LINKS_TO_NOTHING, path)
        elif not os.path.isdir(path):
            yield _file(path, _kind(path))


def _below(folder: str, left_out: LeftOut) -> Iterator[File]:
    """The files of a folder, hidden ones apart. Beside other data, a .json file describes it."""
    paths = sorted(visible_files(folder, left_out))
    if not paths:
        why = f"left out {left_out}" * bool(left_out.names)
        raise RequestError(f"--input: no file in the folder '{printable(folder)}'", why=why, fix="check the path")
    kinds = next((some for some in (_DATA, (".json",)) if any(path.endswith(some) for path in paths)), ("",))
    for path in paths:
        if path.endswith(kinds):
            yield _file(path, _kind(path) if any(kinds) else "text")
        elif os.path.basename(path) != MANIFEST:
            left_out.add(f"of other kinds than {', '.join(sorted(kinds))}", path)


def place(word: str) -> str:
    """Where the files of a word are: a path; of a pattern, the folder above all that it matches."""
    if os.path.lexists(word) or not any(char in word for char in _PATTERN):
        return word
    parts = word.split("/")
    first = next(number for number, part in enumerate(parts) if any(char in part for char in _PATTERN))
    return "/".join(parts[:first]) or ("/" if word.startswith("/") else ".")


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
