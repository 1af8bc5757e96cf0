"""Follows a file of JSON lines that others append to: `metrics.jsonl`, `logs/events.jsonl`."""

from __future__ import annotations

import os
from typing import Any

from primus_machine.files import plain_json

__all__ = ["Follower"]

_MOST = 4 << 20


class Follower:
    """Reads what is new in the file at `path`, which may not be there yet, and may be replaced."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._offset = 0
        self._file = (0, 0)
        self._torn = b""

    def new(self) -> list[dict[str, Any]]:
        """The objects of the whole lines since the last call. A torn last line waits; what is no object is skipped."""
        data = self._read()  # which may find another file in its place, and forget the torn line
        *lines, self._torn = (self._torn + data).split(b"\n")
        return [found for line in lines if (found := _object(line)) is not None]

    def _read(self) -> bytes:
        """What was appended, some megabytes at most; the rest comes with the next call."""
        try:
            with open(self._path, "rb", buffering=0) as file:
                state = os.fstat(file.fileno())
                if (state.st_dev, state.st_ino) != self._file or state.st_size < self._offset:
                    self._file, self._offset, self._torn = (state.st_dev, state.st_ino), 0, b""
                file.seek(self._offset)
                data = file.read(_MOST)
        except OSError:  # not there yet, or not for the moment
            return b""
        self._offset += len(data)
        return data


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        found = plain_json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
