"""Texts that a page shows: without what a terminal or a browser obeys."""

from __future__ import annotations

from typing import Any

from primus_machine.text import printable

__all__ = ["plain"]


def plain(text: Any) -> str:
    """A text in which escape sequences, marks that turn its direction, and the like are spelt out."""
    return printable(str(text), "\n")
