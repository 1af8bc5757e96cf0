"""Text of others (a run's files, a log, a path) as a terminal may show it: it obeys none of it."""

from __future__ import annotations

from typing import Self

__all__ = ["Note", "printable"]


class Note(str):
    """A note for people. `about`: what it is about, for code; empty: nobody asks."""

    about: str

    def __new__(cls, text: str, about: str = "") -> Self:
        """Make one."""
        note = super().__new__(cls, text)
        note.about = about
        return note


def printable(text: str, keep: str = "") -> str:
    """`text` with what is not printable spelt out: line ends, escape sequences, marks that turn the direction of
    writing. `keep`: characters that stay as they are all the same.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else _spelt_out(c) for c in text)


def _spelt_out(char: str) -> str:
    return char.encode("unicode_escape", "surrogatepass").decode()
