"""Signs of life on stderr for what takes longer than a person waits without wondering."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from primus_core import get_logger

__all__ = ["logged"]

_FIRST_AFTER_S, _GROWTH, _LONGEST_PAUSE_S = 2.0, 1.5, 30.0


@contextmanager
def logged(what: Callable[[], str], first_after_s: float = _FIRST_AFTER_S) -> Iterator[None]:
    """Say meanwhile what goes on: nothing in the first seconds, then ever more rarely, even while the work blocks."""
    over, began = threading.Event(), time.monotonic()

    def speak() -> None:
        pause_s = first_after_s
        while not over.wait(pause_s):
            message = f"preflight: {what()}, after {time.monotonic() - began:.0f} s"
            get_logger().info("preflight_progress", message=message)
            pause_s = min(pause_s * _GROWTH, _LONGEST_PAUSE_S)

    thread = threading.Thread(target=speak, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
