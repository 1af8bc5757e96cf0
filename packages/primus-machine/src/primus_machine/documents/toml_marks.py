"""Where the keys of a TOML file stand: tomllib keeps no places."""

from __future__ import annotations

import re
from typing import Any

from primus_machine.files.document import Path, at

__all__ = ["toml_marks"]


def toml_marks(text: str, path: str, data: dict[str, Any]) -> dict[Path, str]:
    """Lines of `[table]` headers and of keys. tomllib keeps none; a key in an inline table gets its table's line.

    What looks like either but is not in `data` is a line of a list.
    """
    marks: dict[Path, str] = {}
    table: Path = ()
    inside = False  # of a string of several lines
    for number, line in enumerate(text.split("\n"), 1):
        was_inside, inside = inside, inside ^ (len(re.findall(r"\"{3}|'{3}", line)) % 2 == 1)
        header = re.match(r"\s*\[\[?([\w.\- \"']+)\]\]?\s*(?:#|$)", line)
        key = re.match(r"\s*([\w.\-\"']+)\s*=", line)
        if was_inside or not (found := header or key):
            continue
        parts = tuple(part.strip(" \"'") for part in found[1].split("."))
        here = parts if header else (*table, *parts)
        if at(data, here) is not None:
            marks[here] = f"{path}:{number}"
            table = here if header else table
    return marks
