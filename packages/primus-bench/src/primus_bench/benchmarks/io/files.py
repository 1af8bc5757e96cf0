"""Files that are written, read and checked, block by block. Each pass says how long it took."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from primus_machine.host import HostRoot

__all__ = ["Written", "cached", "drop_cache", "file_system", "metadata", "read", "write", "wrong"]

_PERIOD = bytes(range(1, 252))
"""251 is prime, and no block is a multiple of it: a block in the place of another does not fit."""
_PROBES = 256
_NO_SUCH_QUESTION = (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)


class Written(NamedTuple):
    """Seconds until the last call returned, and until the storage has it all."""

    returned_s: float
    durable_s: float


def _blocks(size: int, block: int) -> Iterator[tuple[int, int]]:
    """Offset and length of each."""
    for start in range(0, size, block):
        yield start, min(block, size - start)


def _pattern(seed: int, block: int) -> bytes:
    """A text that each block is a part of."""
    text = _PERIOD[seed % 251 :] + _PERIOD[: seed % 251]
    return text * (block // len(text) + 2)


def write(path: str, size: int, block: int, seed: int) -> Written:
    """Make a new file, and wait until its data and its name are on the storage."""
    text = memoryview(_pattern(seed, block))
    began = time.perf_counter()
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        for start, length in _blocks(size, block):
            _write_all(file, text[start % 251 : start % 251 + length])
        returned = time.perf_counter() - began
        os.fsync(file)
    finally:
        os.close(file)
    _sync_folder(os.path.dirname(path))
    return Written(returned, time.perf_counter() - began)


def _write_all(file: int, data: memoryview) -> None:
    while data:
        data = data[os.write(file, data) :]


def _sync_folder(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:  # some network file systems have no such call for folders
        if error.errno not in _NO_SUCH_QUESTION:
            raise
    finally:
        os.close(descriptor)


def drop_cache(path: str) -> None:
    """Ask the kernel to forget the file's pages, which are on the storage by now."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(file)


def cached(path: str) -> float | None:
    """The share of the file that a read would find in memory, of evenly spaced pages; None: the kernel does not say."""
    size = os.path.getsize(path)
    places = [size * probe // _PROBES for probe in range(_PROBES)]
    file, page = os.open(path, os.O_RDONLY | os.O_CLOEXEC), bytearray(1)
    try:
        return sum(_is_cached(file, page, place) for place in places) / _PROBES
    except OSError as error:
        if error.errno in _NO_SUCH_QUESTION:
            return None
        raise
    finally:
        os.close(file)


def _is_cached(file: int, page: bytearray, place: int) -> bool:
    try:
        return os.preadv(file, [page], place, os.RWF_NOWAIT) > 0
    except BlockingIOError:
        return False


def read(path: str, size: int, block: int) -> float:
    """Seconds to read the file once from its beginning."""
    buffer = memoryview(bytearray(block))
    began = time.perf_counter()
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        left = size
        while left and (count := os.readv(file, [buffer[: min(block, left)]])):
            left -= count
    finally:
        os.close(file)
    return time.perf_counter() - began


def wrong(path: str, size: int, block: int, seed: int) -> str:
    """What is wrong with the file's content; empty: nothing."""
    if (found := os.path.getsize(path)) != size:
        return f"{path} has {found} bytes, not {size}"
    text = _pattern(seed, block)
    with open(path, "rb", buffering=0) as file:
        for start, length in _blocks(size, block):
            data = _read_all(file.fileno(), length)
            if data != text[start % 251 : start % 251 + length]:
                return f"{path} differs from what was written, in the block of {length} bytes at {start}"
    return ""


def _read_all(file: int, length: int) -> bytes:
    parts = []
    while length and (part := os.read(file, length)):
        parts.append(part)
        length -= len(part)
    return b"".join(parts)


def metadata(folder: str, count: int) -> dict[str, float]:
    """Seconds to create, look at, rename and delete so many empty files, each in one pass over all of them.

    Raises:
        ValueError: the folder does not hold what it should after one of them.
    """
    old, new = ([f"{folder}/{kind}{number}" for number in range(count)] for kind in ("a", "b"))
    passes: tuple[tuple[str, Callable[[], object], list[str]], ...] = (
        ("create", partial(_each, _create, old), old),
        ("stat", partial(_each, os.stat, old), old),
        ("rename", partial(_each, os.rename, old, new), new),
        ("delete", partial(_each, os.unlink, new), []),
    )
    found = {}
    for name, work, left in passes:
        began = time.perf_counter()
        work()
        found[name] = time.perf_counter() - began
        if sorted(os.listdir(folder)) != sorted(map(os.path.basename, left)):
            raise ValueError(f"after {name}, {folder} does not hold the {len(left)} files that it should")
    return found


def _each(call: Callable[..., object], *paths: Sequence[str]) -> None:
    for named in zip(*paths, strict=True):
        call(*named)


def _create(path: str) -> None:
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def file_system(folder: str) -> str:
    """The type of the file system that `folder` is on, as the kernel calls it; empty: it does not say."""
    found, longest = "", -1
    real = os.path.realpath(folder)
    for line in (HostRoot().text("/proc/self/mountinfo") or "").splitlines():
        words = line.split()
        target = words[4].encode().decode("unicode_escape")
        if len(target) >= longest and os.path.commonpath((real, target)) == target:
            found, longest = words[words.index("-") + 1], len(target)
    return found
