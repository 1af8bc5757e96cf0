"""Reads a file of the model catalogue and checks every word of it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import Any, get_args, get_type_hints

from primus_core.config import files
from primus_core.config.document import Document, Path, at, dotted
from primus_core.errors import ConfigError, suggestion
from primus_machine import strict
from primus_train.models.architecture import Entry, Model, impossible

__all__ = ["SUFFIXES", "read"]

SUFFIXES = (".yaml", ".yml", ".toml")
_KEYS = ("family", "common", "models")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
_EXAMPLE = "write `models:`, below it a model's name, and below that its facts: docs/models.md"


def read(path: str, origin: str) -> tuple[Model, ...]:
    """The models in the file `path`: those below `models:`, each over what `common:` says of all.

    Raises:
        ConfigError: it cannot be read, or something in it is wrong or impossible.
    """
    document = files.read(path, {})
    if "modules" in document.data:
        what, fix = "this is an experiment, and no file of models", f"primus config show {shlex.quote(path)} --resolved"
        raise ConfigError(what, where=document.where(("modules",)), fix=fix)
    _check_keys(document)
    common = _section(document, ("common",))
    family = document.data.get("family", "")
    if not isinstance(family, str):
        raise ConfigError(f"the family is {family!r}, and no text", where=document.where(("family",)))
    models = _section(document, ("models",))
    if not models.data:
        raise ConfigError("this file has no model", where=document.where(("models",)), fix=_EXAMPLE)
    return tuple(
        _model(name, models.section((name,)).merged_onto(common), family, origin) for name in _names(models, common)
    )


def _check_keys(document: Document) -> None:
    for key in document.data:
        if key not in _KEYS:
            raise ConfigError(
                f"unknown key '{key}'",
                where=document.where((key,)),
                why=f"known here: {', '.join(_KEYS)}",
                fix=suggestion(key, _KEYS) or _EXAMPLE,
            )


def _section(document: Document, path: Path) -> Document:
    value = at(document.data, path)
    if value is not None and not isinstance(value, Mapping):
        raise ConfigError(f"`{dotted(path)}` takes keys and values, and is {value!r}", where=document.where(path))
    return document.section(path)


def _names(models: Document, common: Document) -> list[str]:
    for name in models.data:
        _section(models, (name,))
        if not _NAME.fullmatch(name):
            why = "a name has letters, digits, '.', '_', '+' and '-', a letter or digit first"
            raise ConfigError(f"{name!r} is not a valid name of a model", where=models.where((name,)), why=why)
    return list(models.data)


def _model(name: str, document: Document, family: str, origin: str) -> Model:
    try:
        entry = strict.read(Entry, _with_head_dim(name, document))
    except strict.ValidationError as error:
        raise _explain(name, error, document) from None
    for wrong in impossible(entry):
        key = wrong.key if at(document.data, wrong.key) is not None else ()
        raise ConfigError(f"{name}: {wrong.what}", where=document.where(key), fix=wrong.fix)
    return Model(name, family or name, origin, document.where(()), entry)


def _with_head_dim(name: str, document: Document) -> dict[str, Any]:
    """The facts; the width of a head, where it is not said, is what most models have."""
    hidden, heads = document.data.get("hidden_size"), document.data.get("num_attention_heads")
    if "head_dim" in document.data or not (isinstance(hidden, int) and isinstance(heads, int) and heads > 0):
        return document.data
    if hidden % heads:
        what = f"{name}: hidden_size {hidden} cannot be split into {heads} heads"
        fix = "make num_attention_heads a divisor of it, or set head_dim"
        raise ConfigError(what, where=document.where(("num_attention_heads",)), fix=fix)
    return {**document.data, "head_dim": hidden // heads}


def _explain(name: str, error: strict.ValidationError, document: Document) -> ConfigError:
    # A misspelt key before the key that it leaves missing: its message has the line and the suggestion.
    first = min(error.errors(), key=lambda e: e["type"] != "extra_forbidden")
    path: Path = tuple(first["loc"])
    where, key = document.where(path), dotted(path)
    if first["type"] == "extra_forbidden":
        known = _fields(path[:-1])
        near = suggestion(str(path[-1]), known) or "remove it"
        return ConfigError(f"{name}: unknown key '{key}'", where=where, why=f"known: {', '.join(known)}", fix=near)
    if first["type"] == "missing":
        missing = [
            dotted(tuple(e["loc"])) for e in error.errors() if e["type"] == "missing" and e["loc"] != ("head_dim",)
        ]
        text = f"{', '.join(map(repr, missing))} {'is' if len(missing) == 1 else 'are'} missing"
        return ConfigError(f"{name}: {text}", where=where, fix="add it: docs/models.md has an example")
    return ConfigError(f"{name}: '{key}' is {first['input']!r}", where=where, why=first["msg"])


def _fields(path: Path) -> list[str]:
    """The keys that stand at `path`."""
    kind: Any = Entry
    for part in path:
        kind = next(filter(is_dataclass, get_args(get_type_hints(kind)[str(part)])))
    return strict.keys(kind)
