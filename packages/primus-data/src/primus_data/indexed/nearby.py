"""Prepared data in a folder, and which of it a path nearly names: an error proposes only what is there."""

from __future__ import annotations

import os
from collections.abc import Sequence

from primus_machine.errors import nearest

__all__ = ["correct_prefix", "is_there", "nearest_prefix", "prefixes_in"]

_WRITTEN = "_text_document"
"""What `data prepare` appends to a prefix by default."""


def is_there(prefix: str, cwd: str = "") -> bool:
    """Return whether both files of a prefix exist."""
    return all(os.path.exists(os.path.join(cwd, prefix + suffix)) for suffix in (".idx", ".bin"))


def prefixes_in(folder: str) -> list[str]:
    """Return the names of the prefixes in `folder` that have both files, sorted."""
    try:
        names = set(os.listdir(folder))
    except OSError:
        return []
    return sorted(name[:-4] for name in names if name.endswith(".idx") and f"{name[:-4]}.bin" in names)


def nearest_prefix(path: str, cwd: str = "") -> str:
    """Return the prefix beside `path` that was probably meant, as one types it; empty: none is near."""
    folder, name = os.path.split(path)
    known = prefixes_in(os.path.join(cwd, folder) or ".")
    longer = [one for one in known if name and one.startswith(name)]
    longer.sort(key=lambda one: (not one.endswith(_WRITTEN), len(one)))
    found = longer[0] if longer else _nearest(name, known)
    return os.path.join(folder, found) if found else ""


def _nearest(name: str, known: Sequence[str]) -> str:
    if not name.endswith(_WRITTEN):
        return nearest(name, known)
    stems = {one.removesuffix(_WRITTEN): one for one in known}  # the same end makes no names alike
    return stems.get(nearest(name.removesuffix(_WRITTEN), stems), "")


def correct_prefix(path: str, cwd: str = "") -> str:
    """Return what to do if there is no prepared data at a path."""
    fix = "name a prefix: the path without .bin and .idx"
    if is_there(path, cwd):
        return fix
    if near := nearest_prefix(path, cwd):
        return f"{fix}, such as {near}"
    return fix if path.endswith(("_document", "_sentence")) else f"{fix}; `data prepare` writes PREFIX_<key>_document"
