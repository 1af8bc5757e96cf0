"""The file of a report: in the form that its suffix names, whole or not at all, and in nobody else's place."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence

from primus_core.errors import MachineError, RequestError
from primus_machine.files.atomic import is_own_link, regular, write_atomically
from primus_report.writers.data import KEY
from primus_report.writers.markdown import GENERATOR, MARK

__all__ = ["SUFFIXES", "check", "write"]

_MARKS = {".html": f'content="{GENERATOR}"', ".md": MARK, ".json": f'"{KEY}"'}
SUFFIXES = tuple(_MARKS)
_HEAD = 1024


def check(paths: Sequence[str], *, force: bool) -> None:
    """Refuse what cannot be written, before anything is read.

    Raises:
        RequestError: a suffix names no form, or a file there is no report.
        MachineError: the folder cannot be written.
    """
    for path in paths:
        suffix = os.path.splitext(path)[1].lower()
        if suffix not in _MARKS:
            raise RequestError(f"'{path}' has no known report format", fix=f"end it in {', '.join(SUFFIXES)}")
        folder = os.path.dirname(os.path.abspath(path))
        if os.path.isdir(path):
            raise RequestError(f"'{path}' is a folder", fix=f"name a file in it: {os.path.join(path, 'report.html')}")
        if not os.path.isdir(folder):
            raise RequestError(f"there is no folder '{folder}'", fix=f"mkdir -p {folder}")
        if not os.access(folder, os.W_OK | os.X_OK):
            raise MachineError(f"cannot write {path}", why=f"you may not write to {folder}", fix="choose another -o")
        if os.path.lexists(path) and not force and not _is_report(path, _MARKS[suffix]):
            raise RequestError(
                f"'{path}' exists, and is not a report", why="it would be lost", fix="choose another -o, or add --force"
            )


def _is_report(path: str, mark: str) -> bool:
    """Whether a file is one that this command wrote, or is empty."""
    try:
        with open(path, encoding="utf-8", errors="replace", opener=regular) as file:
            head = file.read(_HEAD)
    except OSError:
        return False
    return not head or mark in head


def write(path: str, forms: Mapping[str, Callable[[], str]]) -> None:
    """Write it. A link of one's own is followed.

    Raises:
        MachineError: it cannot be written.
    """
    text = forms[os.path.splitext(path)[1].lower()]()
    try:
        write_atomically(os.path.realpath(path) if is_own_link(path) else path, text)
    except OSError as error:
        raise MachineError(f"cannot write {path}", why=error.strerror or "", fix="choose another -o") from None
