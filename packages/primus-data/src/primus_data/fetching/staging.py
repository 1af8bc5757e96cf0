"""Bytes of remote files: whole ones are downloaded ahead, checked and later removed; of others, parts are read."""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import IO

from primus_data.fetching import progress
from primus_data.fetching.network import Client, Remote
from primus_data.fetching.sources import Source
from primus_machine.errors import PrimusError

__all__ = ["RemoteFile", "Staging", "sha256_of"]

_CHUNK = 1 << 20
_TRIES = 2
"""So often a file is downloaded whose checksum is wrong: a proxy may have kept a broken one."""


class RemoteFile(io.RawIOBase):
    """A file on a server, read by ranges: what is asked for, and no more."""

    def __init__(self, client: Client, remote: Remote) -> None:
        self._client, self._remote, self._at = client, remote, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._remote.size}[whence]
        self._at = max(base + offset, 0)
        return self._at

    def readinto(self, buffer: object) -> int:
        view = memoryview(buffer).cast("B")  # type: ignore[arg-type]  # a buffer has no type before Python 3.12
        stop = min(self._at + len(view), self._remote.size)
        size = 0
        for chunk in self._client.read(self._remote, self._at, stop) if stop > self._at else ():
            view[size : size + len(chunk)] = chunk
            size += len(chunk)
        self._at += size
        return size

    def stream(self) -> Iterator[bytes]:
        """All of it in one request, in chunks."""
        yield from self._client.read(self._remote, 0, self._remote.size)


class Staging:
    """Downloads files before they are needed, some at a time, into a folder."""

    def __init__(self, client: Client, folder: str, workers: int) -> None:
        self._client, self._folder = client, folder
        self._pool = ThreadPoolExecutor(workers, "download")
        self._coming: dict[int, Future[str]] = {}

    def ahead(self, sources: Iterable[tuple[int, Source]]) -> None:
        """Begin with these, in this order. The number of a source tells it apart."""
        for number, source in sources:
            if number not in self._coming:
                self._coming[number] = self._pool.submit(self._download, number, source)

    def take(self, number: int, source: Source) -> str:
        """The path of a file, when it is whole.

        Raises:
            Refused: the server does not give it.
            PrimusError: it cannot be downloaded.
        """
        self.ahead([(number, source)])
        return self._coming[number].result()

    def drop(self, number: int) -> None:
        """Remove a file that was read."""
        if self._coming.pop(number, None):
            with suppress(FileNotFoundError):
                os.unlink(self._path(number))

    def close(self) -> None:
        """Stop what is still coming. What has come stays, for the next start."""
        self._client.stop.set()
        self._pool.shutdown(cancel_futures=True)

    def _path(self, number: int) -> str:
        return os.path.join(self._folder, f"{number:06d}")

    def _download(self, number: int, source: Source) -> str:
        assert source.remote
        path = self._path(number)
        for tried in range(_TRIES):
            found = self._continued(path, source.remote)
            if not source.sha256 or found == source.sha256:
                return path
            os.unlink(path)
            if tried + 1 < _TRIES:
                progress.say("data_fetch_checksum", f"the checksum of {source.path} is wrong: downloading it again")
        raise PrimusError(
            f"the checksum of {source.path} is wrong",
            why=f"its sha256 is {found}, and the Hub tells {source.sha256}",
            fix="a proxy or mirror may have a broken copy: name another --endpoint, or report it to those who serve it",
        )

    def _continued(self, path: str, remote: Remote) -> str:
        """The checksum of a file, of which a part may be here."""
        with open(path, "ab+") as file:
            if file.tell() > remote.size:
                file.truncate(0)
            file.seek(0)
            digest = sha256_of(file)
            for chunk in self._client.read(remote, file.tell(), remote.size):
                file.write(chunk)
                digest.update(chunk)
        return digest.hexdigest()


def sha256_of(file: IO[bytes]) -> hashlib._Hash:
    """The hash of all that follows in a file."""
    digest = hashlib.sha256()
    while chunk := file.read(_CHUNK):
        digest.update(chunk)
    return digest
