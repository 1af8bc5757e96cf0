"""The files that a patch of `code.repository` changes."""

from __future__ import annotations

import re
from collections.abc import Iterator

__all__ = ["changed_paths"]

_HEADER = re.compile(rb"^diff --git (.*)$", re.M)


def changed_paths(patch: bytes) -> Iterator[str]:
    """The files that a patch changes, escaped where git puts quotes around them.

    It tells of no renames, so that both halves of `a/<path> b/<path>` are one path, whatever that holds.
    """
    for names in _HEADER.findall(patch):
        half = names[: len(names) // 2]
        path = half[1:-1] if half.startswith(b'"') else half
        yield path.removeprefix(b"a/").decode(errors="replace")
