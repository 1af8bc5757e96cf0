"""Signs of life in the log for whatever takes longer than a person waits without wondering."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import Self

from primus_core import get_logger

__all__ = ["Progress", "logged"]

_FIRST_AFTER_S = 2.0
_GROWTH = 1.5
_LONGEST_PAUSE_S = 30.0


class Progress:
    """Says what goes on, and for how long: nothing in the first two seconds, then ever more rarely.

    Use it as a context manager, and call it with a text when something new begins.
    """

    def __init__(self, say: Callable[[str], object], first_after_s: float = _FIRST_AFTER_S) -> None:
        self._say, self._pause_s = say, first_after_s
        self._text, self._since = "", 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._speak, name="progress", daemon=True)

    def __call__(self, text: str) -> None:
        if text != self._text:
            self._text, self._since = text, time.monotonic()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _speak(self) -> None:
        logged = ""
        while not self._over.wait(self._pause_s):
            if text := self._text:
                self._say(f"bench: {text}" + f" (for {time.monotonic() - self._since:.0f} s)" * (text == logged))
            logged = text
            self._pause_s = min(self._pause_s * _GROWTH, _LONGEST_PAUSE_S)


def logged(*, here: bool = True) -> AbstractContextManager[Callable[[str], None]]:
    """Progress as events `bench_progress` in the run's log; `here`: this rank speaks for all."""
    if not here:
        return nullcontext(lambda _: None)
    say = get_logger().info  # structlog loads here, and not in the midst of a measurement
    return Progress(lambda text: say("bench_progress", message=text))
