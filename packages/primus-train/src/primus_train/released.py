"""Presets of AMD's Primus as it was released: `config: pre_trainer.yaml`, and the model files that go with it.

A backend has them as data, one file a release, in `presets/released`. A command of the backend makes these files from a
checkout of AMD's Primus (`python -m primus_megatron.generate_presets`); nobody edits them.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from primus_core.config.document import Document, Path
from primus_core.errors import ConfigError, suggestion

__all__ = ["SUFFIXES", "Released", "is_released"]

SUFFIXES = (".yaml", ".yml")
_FOLDER = "released"
_OF = " of AMD's Primus "


def is_released(where: str) -> bool:
    """Check whether the place of a setting is one of these presets."""
    return _OF in where


@dataclass(frozen=True, slots=True)
class Released:
    """All presets of one release for one framework."""

    release: str
    data: Mapping[str, Any]

    @classmethod
    def asked(cls, folder: str, preset: object, where: str) -> Self | None:
        """Return the release that the `config:` of a module asks for, or None if it names no preset of AMD's.

        `folder` is the backend's folder of presets. `pre_trainer.yaml@v26.4.0` asks for a release by name.

        Raises:
            ConfigError: there is no such release.
        """
        name, at, release = preset.partition("@") if isinstance(preset, str) else ("", "", "")
        found = _releases(folder) if name.endswith(SUFFIXES) and not name.startswith("./") else {}
        if not found:
            return None
        if at and release not in found:
            why = f"releases: {', '.join(found)}"
            raise ConfigError(
                f"'{name}' has no release '{release}'",
                where=where,
                why=why,
                fix=suggestion(release, found) or f"write {name} for the newest",
            )
        chosen = release or next(iter(found))
        data = _load(found[chosen])
        return cls(chosen, data) if _stem(name) in data["modules"] else None

    @classmethod
    def newest(cls, folder: str) -> Self | None:
        """Return the newest release that the backend has, or None if it has none."""
        return next((cls(release, _load(path)) for release, path in _releases(folder).items()), None)

    def fp8(self) -> Mapping[str, Any]:
        """Return what the FP8 model files add to the lists in the plain ones; empty: there are none."""
        models: Mapping[str, Mapping[str, Any]] = self.data["models"]
        of_fp8 = ((models[name.removesuffix("-fp8")], models[name]) for name in models if name.endswith("-fp8"))
        plain, other = next(of_fp8, ({}, {}))
        changed = {key: value for key, value in other.items() if value != plain.get(key)}
        return {key: [one for one in value if one not in (plain.get(key) or ())] for key, value in changed.items()}

    def read(self, kind: str, name: str) -> Document | None:
        """Return a preset of `kind` (models or modules), or None if the release has no such one."""
        known: Mapping[str, Any] = self.data[kind]
        stem = _stem(name.partition("@")[0])
        folded = {one.lower(): one for one in known}
        if (found := folded.get(stem.lower())) is None:
            return None
        mark = f"{stem}.yaml{_OF}{self.release}"
        settings = json.loads(json.dumps(known[found]))
        return Document(settings, dict.fromkeys(_paths(settings), mark))


def _stem(name: str) -> str:
    return os.path.splitext(name)[0] if name.endswith(SUFFIXES) else name


def _releases(folder: str) -> dict[str, str]:
    """Return the files by release, the newest first: the package numbers them."""
    inside = os.path.join(folder, _FOLDER)
    names = sorted(os.listdir(inside), reverse=True) if os.path.isdir(inside) else []
    return {name.partition("-")[2].removesuffix(".json"): os.path.join(inside, name) for name in names}


@functools.cache
def _load(path: str) -> Mapping[str, Any]:
    with open(path, encoding="utf-8") as file:
        return dict(json.load(file))


def _paths(data: Mapping[str, Any], before: Path = ()) -> list[Path]:
    found = [before]
    for key, value in data.items():
        found += _paths(value, (*before, key)) if isinstance(value, Mapping) else [(*before, key)]
    return found
