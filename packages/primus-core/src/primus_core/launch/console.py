"""Where Primus's own words go: to stderr, for stdout is the task's."""

from __future__ import annotations

import sys

__all__ = ["say"]


def say(text: str) -> None:
    """Print `text` at once."""
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except OSError:  # nobody reads any more; the run goes on
        pass
