"""Shards: files of JSON lines of about one size. Each appears whole, with its checksum known."""

from __future__ import annotations

import gzip
import hashlib
import os
from collections.abc import Callable
from contextlib import suppress
from typing import IO, Any, cast

from primus_machine.errors import MachineError

__all__ = ["SUFFIXES", "Shard", "name_of"]

SUFFIXES = {"": ".jsonl", "gz": ".jsonl.gz", "zst": ".jsonl.zst"}
_BUFFER = 1 << 20
_GZIP_LEVEL = 6


def name_of(stem: str, number: int, compress: str) -> str:
    """The file of a shard."""
    return f"{stem}-{number:05d}{SUFFIXES[compress]}"


class Shard:
    """A shard being written."""

    def __init__(self, path: str, compress: str) -> None:
        self.path, self.rows, self.size = path, 0, 0
        """`size`: bytes of text, before they are compressed."""
        self._file = open(path, "wb", buffering=_BUFFER)
        self._digest = _Digest(self._file)
        self._text: Any = _compressor(compress)(self._digest)
        self.write: Callable[[bytes], Any] = self._text.write

    def add(self, line: bytes) -> None:
        """Append a row."""
        self.write(line)
        self.rows += 1
        self.size += len(line)

    def finish(self, path: str) -> dict[str, Any]:
        """Rename it to `path`; what the manifest says of it.

        Raises:
            OSError: the disk does not take it.
        """
        if self._text is not self._digest:
            self._text.close()
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        found = {"file": os.path.basename(path), "rows": self.rows, "bytes": os.path.getsize(self.path)}
        os.replace(self.path, path)
        return {**found, "text_bytes": self.size, "sha256": self._digest.sha256.hexdigest()}

    def drop(self) -> None:
        """Remove what was written."""
        with suppress(OSError):
            self._file.close()
        with suppress(OSError):
            os.unlink(self.path)


class _Digest:
    """Hashes what is written."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self.sha256 = file, hashlib.sha256()

    def write(self, data: bytes) -> int:
        self.sha256.update(data)
        return self._file.write(data)

    def flush(self) -> None:
        self._file.flush()


def _compressor(kind: str) -> Callable[[_Digest], Any]:
    if kind == "gz":  # without name and time: the same rows are the same bytes
        return lambda target: gzip.GzipFile("", "wb", _GZIP_LEVEL, target, mtime=0)
    if kind == "zst":
        try:
            import zstandard
        except ImportError:
            raise MachineError("Python module 'zstandard' not found", fix="pip install 'primus-data[zstd]'") from None
        return lambda target: zstandard.ZstdCompressor().stream_writer(cast("IO[bytes]", target), closefd=False)
    return lambda target: target
