"""Writes AMD's presets for TorchTitan as data, from a checkout of AMD's Primus, so that experiments mean the same.

python -m primus_torchtitan.generate_presets FILE CHECKOUT COMMIT
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from primus_torchtitan import earlier_names
from primus_torchtitan.own_settings import MODEL, SETTINGS
from primus_torchtitan.schema import load, shipped
from primus_train.kit import presets
from primus_train.kit.settings import as_options

__all__ = ["reduced"]

_OF_MODEL = ("family", "flavor", "hf_assets_path", "converters")


def reduced(kind: str, preset: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a preset says otherwise than TorchTitan and Primus do by themselves, under the names of today."""
    named = {name: value for given, value in _leaves(preset) for name in earlier_names.names_now(given)}
    if kind == "models":
        found = {name.removeprefix("model."): value for name, value in named.items()}
        return _nested({name: value for name, value in found.items() if name in _OF_MODEL})
    options = {**_newest(), **as_options(SETTINGS), **as_options(MODEL, "model.")}
    kept = {name: value for name, value in named.items() if name in options and value != options[name].default}
    kept = {name: value for name, value in kept.items() if not name.endswith("sink_level")}  # where AMD's logs go
    return _nested({name: value for name, value in kept.items() if value is not None or options[name].optional})


def _newest() -> Mapping[str, Any]:
    schema = load(list(shipped().values())[-1])
    return schema.options


def _leaves(data: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in data.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{before}{key}.")
        else:
            yield before + key, value


def _nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    whole: dict[str, Any] = {}
    for name, value in flat.items():
        *path, last = name.split(".")
        section = whole
        for part in path:
            section = section.setdefault(part, {})
        section[last] = value
    return whole


def main() -> None:
    """Write the file that the command line names."""
    file, checkout, commit = sys.argv[1:]
    presets.write(Path(file), Path(checkout), commit, "torchtitan", reduced)


if __name__ == "__main__":
    main()
