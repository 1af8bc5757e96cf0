"""A command that runs when this process ends, however it ends: what a test sets up outside of it ends with it.

A fixture's finalizer does not run where pytest is killed, or where it takes longer than xdist gives a worker to end.
"""

from __future__ import annotations

import subprocess

_WAIT = 'trap "" HUP INT TERM; cat; exec "$@"'


class Cleanup:
    """A process that waits for the end of its input, which comes at the latest with the end of this process."""

    def __init__(self, *words: str) -> None:
        self._process = subprocess.Popen(
            ["sh", "-c", _WAIT, "sh", *words], stdin=subprocess.PIPE, start_new_session=True
        )

    def run(self) -> None:
        """Run the command now; return when it has ended."""
        self._process.communicate()
