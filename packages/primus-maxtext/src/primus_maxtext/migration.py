"""What MaxText renamed and removed from version to version."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from primus_maxtext.own_settings import SETTINGS
from primus_maxtext.schema import load, shipped
from primus_maxtext.settings import WITHOUT_EFFECT
from primus_train.migration import Fate, Migration, fate_of, find_version, read_rows

__all__ = ["to_version"]

_FRAMEWORK = "maxtext"
_ROWS = Path(__file__).parent / "renamed_settings.json"


def to_version(asked: str) -> Migration:
    """Return the way to a version of MaxText.

    Raises:
        RequestError: there is no such version.
    """
    files = shipped()
    earlier = {version: load(path).options.keys() for version, path in files.items()}
    version = find_version(_FRAMEWORK, asked, files)
    own = {*(row.name for row in SETTINGS), *WITHOUT_EFFECT}
    return Migration(_FRAMEWORK, version, {*earlier[version], *own}, _judge, earlier)


def _judge(name: str, value: Any) -> Fate | None:
    del value
    row = read_rows(_ROWS).get(name)
    return fate_of(row, "MaxText") if row else None
