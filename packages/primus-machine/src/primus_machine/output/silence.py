"""How long ranks have been silent: no line of any of them, and no step in the metrics, which another node may log."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

__all__ = ["Silence"]

_LOOKS = 20
"""The metrics are looked at so often within the limit: a shared file system need not be asked all the time."""


class Silence:
    """Watches for it. `limit_s`: how long ranks may be silent; `start_s`: before the first step; 0: for ever."""

    def __init__(
        self, limit_s: float, start_s: float, metrics: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._limit_s, self._start_s, self._metrics = limit_s, start_s, metrics
        self._length = _length(metrics)
        self._has_begun = False
        self._clock = clock
        self._heard = self._looked = clock()

    def end(self) -> None:
        """A rank has printed something."""
        self._heard = self._clock()

    def so_far_s(self) -> float:
        """For how long no rank has printed anything."""
        return self._clock() - self._heard

    @property
    def limit_s(self) -> float:
        """How long ranks may be silent now."""
        return self._limit_s if self._has_begun else self._start_s

    def is_too_long(self) -> bool:
        """Whether ranks hang. Called several times a second."""
        now = self._clock()
        if not self._limit_s and not self._start_s:
            return False
        if now > self._looked + max(self._limit_s, self._start_s) / _LOOKS or self._is_over(now):
            self._look(now)
        return self._is_over(now)

    def _is_over(self, now: float) -> bool:
        return bool(self.limit_s) and now > self._heard + self.limit_s

    def _look(self, now: float) -> None:
        self._looked = now
        if (length := _length(self._metrics)) != self._length:
            self._length, self._has_begun, self._heard = length, True, now


def _length(path: str) -> int:
    try:
        return os.stat(path).st_size if path else 0
    except OSError:
        return 0
