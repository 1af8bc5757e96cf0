"""What Megatron renamed and removed from version to version, and what AMD's fork calls otherwise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from primus_megatron.fork_settings import table
from primus_megatron.own_settings import CONFIG_FIELDS, SETTINGS
from primus_megatron.schema import load, shipped
from primus_train.migration import Fate, Migration, fate_of, find_version, read_rows

__all__ = ["to_version"]

_FRAMEWORK = "megatron-core"
_ROWS = Path(__file__).parent / "renamed_settings.json"
_AS_IT_IS = ("use_sink_attention", "sink_sliding_window", "sink_window_even_layers_only")
"""Settings of the fork that `fork_settings` understands only together."""


def to_version(asked: str) -> Migration:
    """Return the way to a version of megatron-core.

    Raises:
        RequestError: there is no such version.
    """
    files = shipped()
    earlier = {version: load(path).options.keys() for version, path in files.items()}
    version = find_version(_FRAMEWORK, asked, files)
    own = {*(row.name for row in SETTINGS), *CONFIG_FIELDS, *_AS_IT_IS}
    own |= {name for name, row in table().items() if "sets" in row}  # something else stands in for them
    return Migration(_FRAMEWORK, version, {*earlier[version], *own}, _judge, earlier)


def _judge(name: str, value: Any) -> Fate | None:
    if row := read_rows(_ROWS).get(name):
        return fate_of(row, _FRAMEWORK)
    row = table().get(name)
    if row and "to" in row and not value:
        return Fate(why="it asks for nothing")
    if row and isinstance(row.get("gone"), dict):  # a reason for each value
        row = {**row, "gone": row["gone"].get(str(value), row["gone"][""])}
    return fate_of(row, "AMD's fork") if row else None
