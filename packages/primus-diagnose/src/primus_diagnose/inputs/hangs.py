"""What `primus-watch` left of a hang: where each rank was before Primus ended them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from primus_machine.files import plain_json
from primus_machine.files.atomic import read_below

__all__ = ["last"]

_FOLDER, _FILE = "hang", "answer.json"
_SCHEMA = 1
_MOST = 1 << 26


def last(directory: str) -> Mapping[str, Any]:
    """The last hang of the run in `directory`; empty: it never hung, or what is there is damaged."""
    try:
        number = max(int(name) for name in os.listdir(f"{directory}/{_FOLDER}") if name.isdecimal())
        found = plain_json.loads(read_below(directory, f"{_FOLDER}/{number}/{_FILE}", _MOST))
    except (OSError, ValueError):
        return {}
    if not isinstance(found, dict) or found.get("schema") != _SCHEMA:
        return {}
    return {**found, "file": f"{_FOLDER}/{number}/{_FILE}"}
