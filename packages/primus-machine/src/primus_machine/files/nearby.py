"""What a person may have meant by a path that is not there. Only an error needs it."""

from __future__ import annotations

import os

from primus_machine.errors import nearest

__all__ = ["nearest_beside"]

_ALIKE = 0.85
"""How alike the names must be: `a70b.yaml` is no help for `a8b.yaml`."""


def nearest_beside(path: str, named: str, suffix: str = "") -> str:
    """The path beside `path` whose name is nearest to its own, as `named` names it; empty: nothing is that near.

    Args:
        path: the whole path.
        named: the same path, as it was typed.
        suffix: only names that end in this count.
    """
    folder, name = os.path.split(path)
    try:
        names = [one for one in os.listdir(folder) if one.endswith(suffix)]
    except OSError:
        return ""
    near = nearest(name, names, _ALIKE)
    return os.path.join(os.path.dirname(named), near) if near else ""
