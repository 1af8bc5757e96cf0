"""The folder that is fetched into: what an interrupted fetch left, its lock, and the manifest of a finished one.

train-00000.jsonl     a shard that is finished: it is never written again
manifest.json         appears last: what was fetched, from where, with all checksums
.fetch/               until then: the request with its commit and files, a line for each shard, downloads, the lock
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from primus_data.fetching.shards import SUFFIXES
from primus_data.sources.files import MANIFEST
from primus_machine.errors import MachineError, RequestError
from primus_machine.files import plain_json, trust
from primus_machine.files.atomic import PRIVATE_FOLDER, append_line, read_regular, write_atomically
from primus_machine.host import HostRoot
from primus_machine.text import printable

__all__ = ["Folder"]

_WORK = ".fetch"
_MOST = 1 << 30
_SHARD = re.compile(rf".+-[0-9]{{5,}}(?:{'|'.join(map(re.escape, SUFFIXES.values()))})")


class Folder:
    """An output folder that this process owns."""

    def __init__(self, path: str) -> None:
        """Own it, and make it if it is missing.

        Raises:
            RequestError: another fetch runs in it, or another user's did.
            MachineError: it cannot be made.
        """
        self.path, self._lock = path, -1
        self.work = os.path.join(path, _WORK)
        self.downloads = os.path.join(self.work, "downloads")
        self._was_here = os.path.isdir(path)
        try:
            os.makedirs(path, exist_ok=True)
            with suppress(FileExistsError):
                os.mkdir(self.work, PRIVATE_FOLDER)
            trust.of(HostRoot().environ).require(self.work, "the unfinished fetch in")  # it may hold links
            os.makedirs(self.downloads, exist_ok=True)
            self._lock = os.open(os.path.join(self.work, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise MachineError(f"folder '{path}' cannot be written in", why=str(error)) from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise RequestError(f"another fetch runs in '{path}'", fix="wait for it, or name another folder") from None

    def close(self) -> None:
        """Give it back. If nothing was begun in it, nothing is left."""
        if not os.path.exists(self._path("request.json")):
            shutil.rmtree(self.work, ignore_errors=True)
            if not self._was_here:
                with suppress(OSError):
                    os.rmdir(self.path)
        os.close(self._lock)

    def _path(self, name: str) -> str:
        return os.path.join(self.work, name)

    def manifest(self) -> Mapping[str, Any] | None:
        """The manifest of a finished fetch; None: there is none."""
        return _read(os.path.join(self.path, MANIFEST), ("schema", "request", "shards"))

    def state(self) -> Mapping[str, Any] | None:
        """What an interrupted fetch began with; None: there is none."""
        return _read(self._path("request.json"), ("schema", "request", "revision", "sources", "counts", "bounds"))

    def shards(self) -> list[Mapping[str, Any]]:
        """The finished shards of an interrupted fetch.

        Raises:
            MachineError: one of them is not as it was.
        """
        try:
            lines = read_regular(self._path("shards.jsonl"), _MOST).split(b"\n")
        except FileNotFoundError:
            return []
        found: list[Mapping[str, Any]] = []
        for line in lines[:-1]:  # a line that was cut off is of a shard that will be written again
            with suppress(ValueError):
                found.append(plain_json.loads(line))
        for one in found:
            self.check(one)
        return found

    def check(self, shard: Mapping[str, Any]) -> None:
        """Refuse a finished shard that is not as it was.

        Raises:
            MachineError: it has another size, or is missing.
        """
        path = os.path.join(self.path, os.path.basename(str(shard.get("file"))))
        size = os.path.getsize(path) if os.path.isfile(path) else -1
        if size != shard.get("bytes"):
            raise MachineError(
                f"finished shard '{path}' " + ("is missing" if size < 0 else f"has {size:,} bytes"),
                why=f"it had {shard.get('bytes'):,} bytes when it was written",
                fix=f"remove '{self.path}', and fetch again",
            )

    def refuse_strangers(self, finished: set[str], next_name: str) -> None:
        """Refuse a folder with shards that no fetch here has written: they would be taken for rows of this one.

        Raises:
            RequestError: there are some.
        """
        names = {name for name in os.listdir(self.path) if _SHARD.fullmatch(name)} - finished - {next_name}
        if names:
            raise RequestError(
                f"folder '{self.path}' already has shards, as '{printable(min(names))}'",
                why="they are not of this fetch",
                fix="name another --output-dir, or remove them",
            )

    def begin(self, state: Mapping[str, Any]) -> None:
        """Keep what the fetch begins with."""
        write_atomically(self._path("request.json"), plain_json.dumps(state, indent=1))

    def add(self, shard: Mapping[str, Any]) -> None:
        """Keep that a shard is finished, and where the next one begins."""
        append_line(self._path("shards.jsonl"), plain_json.dumps(shard))
        descriptor = os.open(self._path("shards.jsonl"), os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def finish(self, manifest: Mapping[str, Any]) -> None:
        """Write the manifest, and remove what only an interrupted fetch needs."""
        text = plain_json.dumps(manifest, indent=2, ensure_ascii=False)
        write_atomically(os.path.join(self.path, MANIFEST), f"{text}\n")
        shutil.rmtree(self.work, ignore_errors=True)


def _read(path: str, keys: Sequence[str]) -> Mapping[str, Any] | None:
    try:
        data = plain_json.loads(read_regular(path, _MOST))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise _damaged(path, str(error)) from None
    if not isinstance(data, dict) or (missing := [key for key in keys if key not in data]):
        raise _damaged(path, f"it lacks {', '.join(missing)}" if isinstance(data, dict) else "it is not an object")
    return data


def _damaged(path: str, why: str) -> MachineError:
    return MachineError(f"'{path}' is damaged", why=printable(why), fix="remove its folder, and fetch again")
