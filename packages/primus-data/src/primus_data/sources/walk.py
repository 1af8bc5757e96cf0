"""The files of a folder, and what of it is left out, by the reason."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

from primus_machine.text import printable

__all__ = ["LINKS_TO_NOTHING", "READ_ALREADY", "LeftOut", "links_to_nothing", "visible_files"]

LINKS_TO_NOTHING = "linking to nothing"
READ_ALREADY = "linking to a file that is read already"
_MOST_NAMED = 3


class LeftOut:
    """Files and folders that are not read, by the reason. Those below `root` are named relative to it."""

    def __init__(self, root: str = "") -> None:
        self.start = os.path.join(root, "")
        self.names: dict[str, list[str]] = {}

    def add(self, why: str, path: str) -> None:
        """Count one."""
        self.names.setdefault(why, []).append(printable(path.removeprefix(self.start)))

    def __str__(self) -> str:
        """Return how many of each kind, with some names: `2 not UTF-8 (a.txt, b.txt)`."""
        return "; ".join(f"{len(names)} {why} ({_some(names)})" for why, names in sorted(self.names.items()))


def _some(names: list[str]) -> str:
    more = len(names) - _MOST_NAMED
    return ", ".join(sorted(names)[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def links_to_nothing(path: str) -> bool:
    """Return whether a path is a link whose target does not exist."""
    try:
        return os.path.islink(path) and not os.stat(path)
    except OSError as error:
        return isinstance(error, FileNotFoundError)  # another one is said when the file is opened


def visible_files(root: str, left_out: LeftOut, refuse: Callable[[str], str] = lambda _: "") -> Iterator[str]:
    """Yield the paths of the files below `root` that are not hidden, and no link to nothing.

    Links to folders are not followed.

    `refuse` returns why folders of a name are not entered; empty: they are.
    """
    for where, folders, files in os.walk(root):
        entered = []
        for name in folders:
            path = os.path.join(where, name)
            if why := "hidden" * name.startswith(".") or refuse(name) or "linking to a folder" * os.path.islink(path):
                left_out.add(why, os.path.join(path, ""))
            else:
                entered.append(name)
        folders[:] = entered
        for name in files:
            path = os.path.join(where, name)
            if name.startswith("."):
                left_out.add("hidden", path)
            elif links_to_nothing(path):
                left_out.add(LINKS_TO_NOTHING, path)
            else:
                yield path
