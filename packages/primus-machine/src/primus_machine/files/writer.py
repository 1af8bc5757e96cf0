"""Writes log text from a thread of its own, so that a slow disk or a stopped terminal never stops training."""

from __future__ import annotations

import os
import select
import threading
from collections import deque
from contextlib import suppress

__all__ = ["BackgroundWriter"]


class BackgroundWriter(threading.Thread):
    """A bounded queue in front of file descriptors. When it is full, text is dropped and the loss is counted."""

    def __init__(self, *, limit: int) -> None:
        super().__init__(daemon=True)
        self._limit = limit
        self._queue: deque[tuple[int, bytes | None]] = deque()
        self._size = 0
        self._ready = threading.Condition()
        self._closing = False
        self._dead: set[int] = set()
        self.dropped = 0
        """Bytes that could not be written in time, or at all."""

    def put(self, descriptor: int, data: bytes) -> None:
        """Queue `data` for `descriptor`. Never blocks on it."""
        with self._ready:
            if self._size + len(data) > self._limit:
                self.dropped += len(data)
                return
            self._queue.append((descriptor, data))
            self._size += len(data)
            self._ready.notify()

    def empty(self, descriptor: int) -> None:
        """Queue that the file behind `descriptor` loses what it has, once all before this is written."""
        with self._ready:
            self._queue.append((descriptor, None))
            self._ready.notify()

    def run(self) -> None:
        """The thread."""
        while True:
            with self._ready:
                while not self._queue and not self._closing:
                    self._ready.wait()
                if not self._queue:
                    return
                descriptor, data = self._queue.popleft()
            if data is None:
                with suppress(OSError):
                    os.ftruncate(descriptor, 0)
                continue
            self._write(descriptor, data)
            with self._ready:
                self._size -= len(data)

    def _write(self, descriptor: int, data: bytes) -> None:
        """A descriptor that fails once (disk full, reader gone) is given up: the run goes on without it."""
        view = memoryview(data)
        while view and descriptor not in self._dead:
            try:
                view = view[os.write(descriptor, view) :]
            except BlockingIOError:  # another program made the terminal non-blocking
                select.select([], [descriptor], [])
            except OSError:
                self._dead.add(descriptor)
        with self._ready:
            self.dropped += len(view)

    def close(self, timeout_s: float) -> bool:
        """Write what is queued, for at most `timeout_s` seconds; whether that was enough."""
        with self._ready:
            self._closing = True
            self._ready.notify()
        self.join(timeout_s)
        if self.is_alive():
            with self._ready:
                self.dropped += self._size
        return not self.is_alive()
