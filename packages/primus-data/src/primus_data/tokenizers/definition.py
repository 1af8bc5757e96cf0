"""What a kind of tokenizer says of one: how large it is, what ends a document, and what may encode."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from primus_machine.errors import MachineError, RequestError

__all__ = ["Definition", "Encoded", "Engine", "contents", "digest", "joined", "missing", "without_panics"]

Encoded = tuple[NDArray[np.uint32], NDArray[np.int64]]
"""All ids in a row, and how many there are of each text."""


class Engine(Protocol):
    """A library that encodes with one tokenizer."""

    name: str

    def encode(self, texts: Sequence[str]) -> Encoded: ...

    def decode(self, ids: Sequence[int]) -> str: ...


class Definition(NamedTuple):
    """A tokenizer, before it is decided what encodes."""

    vocab_size: int
    eod: int | None
    digest: str
    reference: Callable[[], Engine]
    """The library that Megatron uses, too. Each call may load the tokenizer again: keep what you got."""
    fast: Sequence[Callable[[], Engine]] = ()
    """The same by faster libraries, the fastest first; each may refuse it with a RuntimeError or a ValueError."""
    specials: Sequence[str] = ()
    """Texts that this tokenizer treats in its own way."""


def contents(path: str, what: str) -> bytes:
    """The bytes of a file.

    Raises:
        RequestError: it is not there, or cannot be read.
    """
    try:
        with open(path, "rb", opener=_of_regular) as file:
            return file.read()
    except FileNotFoundError:
        raise RequestError(f"{what} '{path}' not found") from None
    except OSError as error:
        raise RequestError(f"{what} '{path}' cannot be read", why=str(error.strerror)) from None


def _of_regular(path: str, flags: int) -> int:
    """A FIFO is not waited for, and a device has no end. Links of others are followed: so are caches shared."""
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)
    mode = os.fstat(descriptor).st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):  # a folder is refused by `open`
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a regular file", path)
    return descriptor


def digest(library: str, files: Mapping[str, bytes], **settings: object) -> str:
    """The sha256 over what decides the ids. Names and places of the files do not."""
    sums = {role: hashlib.sha256(data).hexdigest() for role, data in files.items()}
    return hashlib.sha256(json.dumps([library, sums, settings], sort_keys=True).encode()).hexdigest()


def joined(rows: Sequence[Sequence[int] | NDArray[np.uint32]]) -> Encoded:
    """Ids by text, in a row."""
    counts = np.fromiter(map(len, rows), np.int64, len(rows))
    arrays = [np.asarray(row, np.uint32) for row in rows]
    if len(arrays) == 1:  # a long text is not kept twice
        return arrays[0], counts
    return np.concatenate(arrays) if arrays else np.empty(0, np.uint32), counts


@contextmanager
def without_panics() -> Iterator[None]:
    """A library in Rust may panic at a tokenizer that contradicts itself: this is no `Exception`.

    Raises:
        MachineError: it did.
    """
    try:
        yield
    except BaseException as error:  # a panic of Rust is no Exception
        if type(error).__name__ != "PanicException":
            raise
        fix = "check the tokenizer's files: they do not belong together"
        raise MachineError("the library of the tokenizer failed", why=str(error), fix=fix) from None


def missing(library: str) -> MachineError:
    """The error for a library that is not installed."""
    fix = f"pip install 'primus-data[{library}]'"
    return MachineError(f"Python module '{library}' not found", why="it reads this tokenizer", fix=fix)
