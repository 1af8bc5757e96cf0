"""Writes AMD's presets for Megatron as data, from a checkout of AMD's Primus, so that experiments mean the same.

python -m primus_megatron.generate_presets FILE CHECKOUT COMMIT
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from primus_megatron import fork_settings
from primus_megatron.own_settings import SETTINGS
from primus_megatron.schema import load, shipped
from primus_train.kit import presets

__all__ = ["reduced"]

_SAVES_NOTHING = {"save_in_run": False}
"""AMD's Primus saves no checkpoint unless `save` is set, whatever `save_interval` is."""
_MOCK_TOKENS = {"mock_vocab_size": 131072}
"""AMD's Primus draws mock data from so many tokens, unless `vocab_size` is set."""
_OF_TRANSFORMERS = "HuggingFaceTokenizer"


def reduced(kind: str, preset: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a preset says otherwise than Megatron and Primus do by themselves."""
    found = {name: value for name, value in preset.items() if _says_something(name, value)}
    if kind == "modules":  # a preset of the fork has the fork's own defaults, and nothing to tell about them
        found = {name: value for name, value in found.items() if _is_megatrons(name) or "gone" in _row(name)}
    if found.get("tokenizer_type", "").endswith("Tokenizer") and found["tokenizer_type"] not in _choices():
        found["tokenizer_type"] = _OF_TRANSFORMERS  # AMD's own classes read it with transformers, too
    return {**(_SAVES_NOTHING | _MOCK_TOKENS if kind == "modules" else {}), **found}


def _is_megatrons(name: str) -> bool:
    """Check whether Megatron or Primus has the setting."""
    return name in _schemas()[-1].options or any(name == own.name for own in SETTINGS)


def _row(name: str) -> Mapping[str, Any]:
    return fork_settings.table().get(name, {})


def _says_something(name: str, value: Any) -> bool:
    if any(name == own.name for own in SETTINGS):
        return any(value != own.default and own.becomes != "-" for own in SETTINGS if own.name == name)
    rows = [schema.options[name] for schema in _schemas() if name in schema.options]
    if name not in _schemas()[-1].options:
        return not fork_settings.asks_nothing(name, value)
    if value is None and not all(row.optional for row in rows):
        return False
    return any(value != row.default for row in rows)


def _schemas() -> list[Any]:
    return [load(path) for path in shipped().values()]


def _choices() -> set[str]:
    return {choice for schema in _schemas() for choice in schema.options["tokenizer_type"].choices}


def main() -> None:
    """Write the file that the command line names."""
    file, checkout, commit = sys.argv[1:]
    presets.write(Path(file), Path(checkout), commit, "megatron", reduced)


if __name__ == "__main__":
    main()
