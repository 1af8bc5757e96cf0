"""What AMD's Primus makes of an experiment: its presets, model file and overrides, merged by its own rules.

A module's preset wins over the model file, the overrides over both; `extends` merges deeply, and files are YAML 1.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

__all__ = ["merged", "released", "write_checkout"]

Settings = dict[str, Any]


def write_checkout(folder: Path, framework: str, files: Mapping[str, str]) -> Path:
    """Write presets (`modules/pre_trainer.yaml`) as a checkout of AMD's Primus has them."""
    for name, text in files.items():
        kind, _, file = name.partition("/")
        path = folder / "primus" / "configs" / kind / framework / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def merged(checkout: Path, framework: str, config: str, model: str, overrides: Settings) -> Settings:
    """Return all settings, nested as AMD's Primus has them."""
    configs = checkout / "primus" / "configs"
    module = _whole(configs / "modules" / framework / config)
    return _onto(_onto(_whole(configs / "models" / framework / model), module), overrides)


def _whole(path: Path) -> Settings:
    data = yaml.safe_load(path.read_text())
    whole: Settings = {}
    for base in data.pop("extends", []):
        whole = _onto(whole, _whole(path.parent / base))
    return _onto(whole, data)


def _onto(base: Settings, over: Settings) -> Settings:
    found = dict(base)
    for key, value in over.items():
        both = isinstance(found.get(key), dict) and isinstance(value, dict)
        found[key] = _onto(found[key], value) if both else value
    return found


def released(folder: Path, checkout: Path, framework: str, reduce: Any) -> str:
    """Return a folder of presets in which `checkout` is a release, as a backend's generator writes it."""
    from primus_train.kit import presets

    (folder / "released").mkdir(parents=True)
    presets.write(folder / "released" / "1-v1.json", checkout, "0123abc", framework, reduce)
    return str(folder)
