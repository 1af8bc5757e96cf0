"""Signs of life in the log for whatever takes longer than a person waits without wondering."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

__all__ = ["Progress"]

_FIRST_AFTER_S = 2.0
_GROWTH = 1.5
_LONGEST_PAUSE_S = 30.0


class Progress:
    """Says what goes on: nothing in the first two seconds, then ever more rarely, even while the work blocks.

    Use it as a context manager, and call it with a text when something new begins.
    """

    def __init__(self, say: Callable[[str], object], first_after_s: float = _FIRST_AFTER_S) -> None:
        self._say, self._pause_s = say, first_after_s
        self._text = ""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._speak, name="progress", daemon=True)

    def __call__(self, text: str) -> None:
        self._text = text

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _speak(self) -> None:
        said = ""
        while not self._over.wait(self._pause_s):
            text = self._text
            if text != said:
                self._say(f"bench: {text}")
                said = text
            self._pause_s = min(self._pause_s * _GROWTH, _LONGEST_PAUSE_S)
