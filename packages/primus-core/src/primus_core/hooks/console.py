"""How a hook tells people something: what it prints goes to `logs/hooks.log`, which nobody watches."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextvars import ContextVar

__all__ = ["SHOW", "show"]

SHOW: ContextVar[Callable[[str], None] | None] = ContextVar("primus_show", default=None)
"""Takes it to the supervisor. Set in the process of a plugin."""
_MOST = 1 << 14


def show(text: str) -> None:
    """Show lines on the console of the run, with secrets masked; outside a hook, on stderr.

    Keep it short and rare. Controls in `text` reach the terminal: clean what other programs have written.
    """
    text = text[:_MOST].rstrip()
    if tell := SHOW.get():
        tell(text)
    else:
        sys.stderr.write(f"{text}\n")
