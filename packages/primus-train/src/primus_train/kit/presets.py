"""Reads the presets in a checkout of AMD's Primus, to keep what they say as data (`primus_train.released`)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from primus_core.config.document import deep_merge

__all__ = ["Reduce", "write"]

Reduce = Callable[[str, Mapping[str, Any]], Mapping[str, Any]]
"""What a backend keeps of a preset: called with `modules` or `models`, and with all settings."""
_SOURCE = "https://github.com/AMD-AGI/Primus/tree/{}/primus/configs"
_LICENCE = "MIT, Copyright (c) 2025 Advanced Micro Devices, Inc."


def write(path: Path, checkout: Path, commit: str, framework: str, reduce: Reduce) -> None:
    """Write what `reduce` keeps of all presets for `framework` in `checkout`, which is at `commit`, to `path`."""
    document: dict[str, Any] = {"source": _SOURCE.format(commit), "licence": _LICENCE}
    configs = checkout / "primus" / "configs"
    trainers = _all(configs / "modules" / framework, "*_trainer.yaml")
    always = set.intersection(*(set(one) for one in trainers.values()))
    models = {  # a module's preset wins over a model file, with its defaults, too
        stem: {name: value for name, value in one.items() if name not in always}
        for stem, one in _all(configs / "models" / framework, "*.yaml").items()
    }
    for kind, whole in (("modules", trainers), ("models", models)):
        document[kind] = {stem: dict(reduce(kind, one)) for stem, one in whole.items()}
    path.write_text(_text(document), encoding="utf-8")


def _all(folder: Path, pattern: str) -> dict[str, Mapping[str, Any]]:
    return {file.stem: _whole(file) for file in sorted(folder.glob(pattern))}


def _whole(file: Path) -> Mapping[str, Any]:
    """Return the settings of a preset with those of all that it extends, read as AMD's Primus does (YAML 1.1)."""
    data = yaml.safe_load(file.read_text(encoding="utf-8")) or {}
    bases = data.pop("extends", [])
    whole: Mapping[str, Any] = {}
    for base in [bases] if isinstance(bases, str) else bases:
        whole = deep_merge(whole, _whole(file.parent / base))
    return deep_merge(whole, data)


def _text(document: Mapping[str, Any]) -> str:
    """Return JSON with one line for each setting, so that two releases can be compared."""
    return json.dumps(document, indent=1, sort_keys=False, ensure_ascii=False) + "\n"
