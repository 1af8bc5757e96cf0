"""Secrets that are written into settings: they are refused before any other error could quote them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from primus_core.errors import ConfigError, Mistakes
from primus_core.request import former
from primus_machine.secrets.redaction import is_secret_setting

if TYPE_CHECKING:
    from primus_core.config.document import Document, Path

__all__ = ["refuse"]


def refuse(data: Mapping[str, Any], path: Path, settings: Document, mistakes: Mistakes) -> dict[str, Any]:
    """The same; a secret written into a setting is refused, so that no other error quotes it. A reference may stand."""
    from primus_core.config.document import REFUSED, dotted

    kept: dict[str, Any] = {}
    for key, value in data.items():
        here, kept[key] = (*path, key), value
        if isinstance(value, Mapping):
            kept[key] = refuse(value, here, settings, mistakes)
        elif isinstance(value, str) and is_secret_setting(str(key), value):
            kept[key] = REFUSED
            what = f"'{dotted(here)}' holds a secret, which would be saved with the run"
            own = f"export it, and write {key}: ${{NAME}} with the variable's name"
            fix = former.instead("train", str(key)) or own
            mistakes.add(ConfigError(what, where=settings.where(here), fix=fix))
    return kept
