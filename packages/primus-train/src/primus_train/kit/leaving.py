"""Ends a worker that has done its work without the interpreter's teardown.

Gloo's threads may still hold tensors of the last collective. Where one of them lets go of a tensor while the
interpreter is torn down, the process is aborted ("terminate called without an active exception", pytorch/pytorch#179291
and #190489), and a training that has saved its last step counts as failed.
"""

from __future__ import annotations

import atexit
import os
import sys

__all__ = ["Leaving"]


class Leaving:
    """How this process ends. Make it before a framework is imported: its exit handlers then come first."""

    def __init__(self) -> None:
        self.code: int | None = None
        """The exit code of a worker whose work is done; None: the interpreter ends as ever."""
        atexit.register(self._at_exit)

    def _at_exit(self) -> None:
        if self.code is not None:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(self.code)
