"""Where Primus's own words go: to stderr, for stdout is the task's."""

from __future__ import annotations

import sys

from primus_machine.files.atomic import open_to_append
from primus_machine.text import printable

__all__ = ["append", "say", "write"]


def say(text: str) -> None:
    """Print words of Primus at once. What they quote of a rank or a script gives the terminal no orders."""
    write(printable(text, "\n\t"))


def write(text: str) -> None:
    """Print `text` at once, as it is."""
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):  # nobody reads any more, or it is closed; the run goes on
        pass


def append(path: str, text: str) -> None:
    """Write `text` behind what the file has."""
    try:
        with open(open_to_append(path), "a", encoding="utf-8") as file:
            file.write(text)
    except OSError:  # a log that cannot be written ends no run
        pass
