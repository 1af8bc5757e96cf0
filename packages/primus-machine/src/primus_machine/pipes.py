"""A pipe of a process: read as it comes, cut into lines, secrets masked."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from dataclasses import dataclass, field

from primus_machine.secrets.masks import Mask, PrivateKeys

__all__ = ["Channel", "make"]

_PIPE_SIZE = 1 << 20
_BLOCK = 1 << 18
"""So much is read at a time: what is done once a block costs little a line."""
_LONGEST_LINE = 1 << 16


@dataclass(slots=True)
class Channel:
    """One pipe of one process. `sink(data, whole)` gets masked text; `whole` is False for an unfinished line.

    `tap` gets each whole line before it is masked.
    """

    descriptor: int
    mask: Mask
    sink: Callable[[bytes, bool], None]
    tap: Callable[[bytes], None] | None = None
    keys: PrivateKeys = field(default_factory=PrivateKeys)
    _rest: bytes = field(default=b"")

    def read(self) -> bool:
        """Take what is there. False: there was nothing (or the writers are gone)."""
        try:
            data = os.read(self.descriptor, _BLOCK)
        except BlockingIOError:
            return False
        if not data:
            return False
        if end := data.rfind(b"\n") + 1:
            whole, self._rest = self._rest + data[:end], data[end:]
            self._pass(whole)
        else:
            self._rest += data
        if len(self._rest) > _LONGEST_LINE and self.tap:
            rest, self._rest = self._rest, b""
            self._pass(rest)
        elif len(self._rest) > _LONGEST_LINE:
            self.flush()
        return True

    def _pass(self, lines: bytes) -> None:
        if self.tap:
            for line in lines.splitlines():
                self.tap(line)
        self._give(self.mask(self.keys(lines)), True)

    def _give(self, text: bytes, whole: bool) -> None:
        self.sink(text, whole)

    def flush(self) -> None:
        """Hand on an unfinished line (a progress bar), less an end that may be the beginning of a secret."""
        if self.tap:
            return  # a script's line is read whole, or the secret in it would be told too late
        if self.keys.inside or not self._rest:
            return
        keep = self.mask.begun(self._rest)
        ready, self._rest = self._rest[: len(self._rest) - keep], self._rest[len(self._rest) - keep :]
        if ready:
            self._give(self.mask(ready), False)

    def finish(self) -> None:
        """Read to the end and hand on everything."""
        while self.read():
            pass
        if self._rest:
            self._pass(self._rest)
            self._rest = b""


def make(path: str) -> int:
    """Make a named pipe that only this person can open; the descriptor to read it from."""
    os.mkfifo(path, 0o600)
    # Read-write: without a writer of its own, the reader would see end-of-file before and between the ranks' writes.
    descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, _PIPE_SIZE)
    except OSError:  # over the user's limit for pipe memory: the default 64 KiB serve too
        pass
    return descriptor
