"""The signals that a person or a scheduler sends to a launch."""

from __future__ import annotations

import os
import signal
from types import FrameType

from primus_machine.keeper import COMMANDS
from primus_machine.processes import ignored_signals

__all__ = ["Signals"]


class Signals:
    """SIGINT, SIGTERM, SIGHUP and SIGQUIT, caught from before anything is written until the run's end.

    One that was ignored when Primus started stays ignored.
    """

    def __init__(self) -> None:
        self.first = 0
        self.count = 0
        self.hurry = False
        """A person sent a further one. A scheduler that says SIGTERM again, as another node has ended, is in none."""
        self.reader, self._writer = os.pipe()
        for descriptor in (self.reader, self._writer):
            os.set_blocking(descriptor, False)
        # What the parent has ignored stays so: under `nohup` a closed terminal ends nothing.
        caught = COMMANDS.keys() - {signal.SIGKILL} - ignored_signals()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # whoever ignores it is never told how a child ended
        self._wakeup = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        self._old = {number: signal.signal(number, self._note) for number in caught}

    def _note(self, number: int, _: FrameType | None) -> None:
        self.hurry = self.hurry or bool(self.first and number in (signal.SIGINT, signal.SIGQUIT))
        self.first = self.first or number
        self.count += 1

    def restore(self) -> None:
        """Give the signals back."""
        signal.set_wakeup_fd(self._wakeup)
        for descriptor in (self.reader, self._writer):
            os.close(descriptor)
        for number, handler in self._old.items():
            signal.signal(number, handler)
