"""Programs side by side, each in a process of its own and all under one time limit, so that one that hangs is a result.

Nothing that they start outlives them; and a program that calls `end_with` does not outlive the one that asked for it.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

__all__ = ["Ended", "end_with", "together"]

_LOOK_EVERY_S = 0.1
_DEATH_S = 5.0
"""A process that SIGKILL does not end in this time waits in a driver, perhaps for ever."""
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


class Ended(NamedTuple):
    """How a program ended, and its output."""

    code: int | None
    """Its exit code (-n for signal n); None: it did not end in time, and was killed."""
    out: str
    errors: str
    lasting: bool = False
    """It could not even be killed."""

    @property
    def how(self) -> str:
        """In words, with its last line on stderr; empty: it succeeded."""
        if self.code is None:
            return "it did not end in time" + ", and cannot be killed" * self.lasting
        message = next((line for line in reversed(self.errors.splitlines()) if line.strip()), "").strip()[:200]
        name = f"by {signal.Signals(-self.code).name}" if self.code < 0 else f"with exit code {self.code}"
        return f"it ended {name}{f': {message}' if message else ''}" if self.code else ""


def together(
    programs: Sequence[Sequence[str]], environ: Mapping[str, str], limit_s: float, watch: Callable[[], None]
) -> list[Ended]:
    """Run all at once with `environ`, for `limit_s` seconds at most. `watch` is called several times a second."""
    running: list[_Process] = []
    try:
        for words in programs:
            running.append(_Process(words, environ))  # noqa: PERF401  # those that have started are ended, whatever happens
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline and not all(one.has_ended() for one in running):
            watch()
            time.sleep(_LOOK_EVERY_S)
        return [one.ended() for one in running]
    finally:
        for one in running:
            one.close()


def end_with(parent: int) -> None:
    """End this process when `parent`, which has started it, ends; at once if it has already."""
    import ctypes  # the standard library has no prctl

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(128 + signal.SIGKILL)


class _Process:
    """A program in a session of its own. What it says goes to memory: a pipe would fill, or be held open by another."""

    def __init__(self, words: Sequence[str], environ: Mapping[str, str]) -> None:
        self._outputs = [os.memfd_create(name, os.MFD_CLOEXEC) for name in ("stdout", "stderr")]
        actions = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            *((os.POSIX_SPAWN_DUP2, descriptor, place) for place, descriptor in enumerate(self._outputs, 1)),
        ]
        defaults = set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}
        self._pid = os.posix_spawn(
            words[0], list(words), dict(environ), file_actions=actions, setsid=True, setsigdef=defaults
        )
        self._status: int | None = None

    def has_ended(self) -> bool:
        # Its number stays its own until it is reaped.
        return os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def ended(self) -> Ended:
        in_time = self.has_ended()
        self._end()
        code = os.waitstatus_to_exitcode(self._status) if self._status is not None and in_time else None
        out, errors = map(_text, self._outputs)
        return Ended(code, out, errors, lasting=self._status is None)

    def _end(self) -> None:
        """End it and what it has started."""
        if self._status is not None:
            return
        os.killpg(self._pid, signal.SIGKILL)
        deadline = time.monotonic() + _DEATH_S
        while not self.has_ended() and time.monotonic() < deadline:
            time.sleep(0.01)
        if self.has_ended():
            self._status = os.waitpid(self._pid, 0)[1]

    def close(self) -> None:
        self._end()
        for descriptor in self._outputs:
            os.close(descriptor)


def _text(descriptor: int) -> str:
    size = os.fstat(descriptor).st_size
    return os.pread(descriptor, size, 0).decode(errors="replace")
