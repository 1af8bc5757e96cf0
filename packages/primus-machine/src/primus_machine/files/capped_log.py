"""A log file with a limit: its beginning stays, and its end is in two further files, of which the older is overwritten.

rank_0.log   the first half; then `rank_0.log.1` and `rank_0.log.2` by turns, a quarter each
"""

from __future__ import annotations

import os
from collections.abc import Callable

from primus_machine.files.writer import BackgroundWriter

__all__ = ["CappedLog", "output_of", "parts"]

_ENDS = (".1", ".2")
_FEWEST = 1024


class CappedLog:
    """Text for the file `name`, which `opened` opens; `limit`: bytes in all, 0: as many as come."""

    def __init__(self, writer: BackgroundWriter, opened: Callable[[str], int], name: str, limit: int) -> None:
        self._writer, self._opened, self._name, self._limit = writer, opened, name, limit
        self._part = 0
        self._sizes = [os.fstat(opened(name)).st_size, 0, 0]
        self._left_out = 0

    def put(self, data: bytes) -> None:
        """Queue `data` behind what there is."""
        while self._limit and len(data) > (free := self._room - self._sizes[self._part]):
            end = data.rfind(b"\n", 0, max(free, 0)) + 1
            if not end and self._sizes[self._part] < _FEWEST // 2:
                end = free  # a line longer than the file
            self._write(data[:end])
            data = data[end:]
            self._turn()
        self._write(data)

    @property
    def _room(self) -> int:
        return max(self._limit // (4 if self._part else 2), _FEWEST)

    def _write(self, data: bytes) -> None:
        if not data:
            return
        self._sizes[self._part] += len(data)
        self._writer.put(self._opened(self._file), data)

    @property
    def _file(self) -> str:
        return f"{self._name}{_ENDS[self._part - 1] if self._part else ''}"

    def _turn(self) -> None:
        """Go on in the other file of the end, and say what is lost."""
        if not self._part:
            name = os.path.basename(self._name)
            self._write(b"primus: half of --log-limit is reached: the end of this log is in %b.1 and %b.2\n"
                        % (name.encode(), name.encode()))  # fmt: skip
        self._part = 2 if self._part == 1 else 1
        descriptor = self._opened(self._file)
        self._left_out += self._sizes[self._part]
        self._sizes[self._part] = 0
        self._writer.empty(descriptor)
        self._write(b"primus: %d bytes of this log are left out so far (--log-limit)\n" % self._left_out)


def parts(path: str) -> list[str]:
    """The files of a log, in the order in which they were written."""
    ends = [f"{path}{end}" for end in _ENDS if os.path.exists(f"{path}{end}")]
    return [path, *sorted(ends, key=lambda end: os.stat(end).st_mtime_ns)]


def output_of(path: str, since: int = 0) -> str:
    """What stands in a log from byte `since` on; empty where there is none."""
    try:
        with open(path, "rb") as file:
            file.seek(since)
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""
