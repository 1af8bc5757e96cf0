"""Which kind of work an operation is, by its name (`data/operations.toml`)."""

from __future__ import annotations

import re
import tomllib
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

__all__ = ["COMMUNICATION", "OTHER", "is_data", "kind", "operation"]

COMMUNICATION = "communication"
OTHER = "other"
_NAMES = 1 << 16
"""So many names are remembered; a trace has some thousand."""
_LONGEST = 80
_COLLECTIVE = re.compile(r"(?i)nccl(?:dev)?kernel_([a-z]+)")


@cache
def _table() -> dict[str, Any]:
    path = Path(__file__).parent.parent / "data" / "operations.toml"
    return tomllib.loads(path.read_text(encoding="utf-8"))


@cache
def _patterns() -> tuple[tuple[str, re.Pattern[str]], ...]:
    return tuple((row["name"], re.compile("|".join(row["patterns"]))) for row in _table()["kind"])


@cache
def _data() -> re.Pattern[str]:
    return re.compile("|".join(_table()["data"]["patterns"]))


@lru_cache(_NAMES)
def kind(name: str) -> str:
    """The kind of an operation."""
    return next((found for found, pattern in _patterns() if pattern.search(name)), OTHER)


@lru_cache(_NAMES)
def is_data(name: str) -> bool:
    """Whether a host event is a wait for the next batch."""
    return bool(_data().search(name))


@lru_cache(_NAMES)
def operation(name: str) -> str:
    """What calls of one operation are called together: without arguments of templates, sizes and numbers of copies."""
    if found := _COLLECTIVE.search(name):
        return f"nccl {found[1]}"
    plain = re.sub(r"^void ", "", name)
    plain = re.split(r"[<(]", plain, maxsplit=1)[0] if not plain.startswith("enumerate(") else plain
    return re.sub(r"\.\d+$", "", plain)[:_LONGEST] or name[:_LONGEST]
