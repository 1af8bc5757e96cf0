"""Keeps the children of a rank alive until the rank ends them: it needs them to save when it is told to end.

torchrun sends a signal to the rank's whole process group, and a scheduler sends one to each process of a job. By
default that ends the process that holds the queue of Megatron's checkpoint writer, and the workers of a data loader,
before the rank has saved.
"""

from __future__ import annotations

import signal
from multiprocessing import get_start_method, popen_fork, resource_tracker
from multiprocessing.process import BaseProcess
from typing import Any

from primus_machine.processes import blocks_signal

__all__ = ["protect"]

_FROM_OUTSIDE = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""Signals of a launcher or a scheduler. A blocked one also passes a handler by that the child sets later."""


class _Protected:
    """Goes to a child that starts as a new program, whose own children need the same."""

    def __reduce__(self) -> tuple[Any, tuple[()]]:
        return protect, ()


def protect() -> None:
    """Let the processes that `multiprocessing` starts from now on end by their parent only, not by a launcher."""
    begin, terminate = BaseProcess.start, popen_fork.Popen.terminate
    if begin.__module__ == __name__:
        return

    def start(self: Any) -> None:
        self._primus_protected = _Protected()
        if (getattr(self, "_start_method", None) or get_start_method()) != "fork":
            resource_tracker.ensure_running()  # which unblocks the signals when it begins, and only then
        # The child has the mask of the thread that starts it, whichever start method it has.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _FROM_OUTSIDE)
        try:
            begin(self)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def end(self: Any) -> None:
        # The parent joins its child after this, and would wait for ever.
        if self.returncode is None and blocks_signal(self.pid, signal.SIGTERM):
            self.kill()
        else:
            terminate(self)

    BaseProcess.start = start  # type: ignore[method-assign]
    popen_fork.Popen.terminate = end  # type: ignore[method-assign]
