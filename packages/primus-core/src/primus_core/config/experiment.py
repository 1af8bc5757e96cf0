"""The experiment file: its form, checked with pydantic, and its presets found and merged.

Order, a later one wins: model preset < framework preset (`config:`) < `overrides:` < command line.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from pydantic import Field, ValidationError

from primus_core.config import files
from primus_core.config.document import Document, Path, at
from primus_core.errors import ConfigError, suggestion
from primus_core.metrics import OnNonFinite
from primus_core.strict import Strict

__all__ = ["Experiment", "Models", "Module", "merged", "parse", "select"]

_PRESET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
_SUFFIXES = (".yaml", ".yml", ".toml")


class Module(Strict):
    """One trainer: a framework and its settings. `model` and `config` are preset names or settings written out."""

    framework: str
    config: str | dict[str, Any] = Field(default_factory=dict)
    model: str | dict[str, Any] = Field(default_factory=dict)
    data: dict[str, Any] = Field(default_factory=dict)
    overrides: dict[str, Any] = Field(default_factory=dict)


class Experiment(Strict):
    """A whole experiment file."""

    exp_name: str
    modules: dict[str, Module]
    work_group: str = ""
    user_name: str = ""
    workspace: str = "output"
    on_non_finite: OnNonFinite = "stop"
    env: dict[str, str | int | float | bool] = Field(default_factory=dict)


def parse(document: Document) -> Experiment:
    """The experiment in `document`.

    Raises:
        ConfigError: the first thing wrong, with file, line and suggestion.
    """
    try:
        return Experiment.model_validate(document.data)
    except ValidationError as error:
        raise _explain(error, document) from None


def _explain(error: ValidationError, document: Document) -> ConfigError:
    # A misspelt key before the key that it leaves missing: its message has the line and the suggestion.
    first = min(error.errors(), key=lambda e: e["type"] != "extra_forbidden")
    path: Path = tuple(first["loc"])
    while first["type"] not in ("extra_forbidden", "missing") and not _stands(document.data, path):
        path = path[:-1]  # pydantic adds the branch of a union (`str`, `dict[...]`); the file has no such key
    name = ".".join(map(str, path))
    where = document.where(path)
    if first["type"] == "extra_forbidden":
        known = _fields_beside(path)
        return ConfigError(
            f"unknown key '{name}'",
            where=where,
            why=f"known here: {', '.join(known)}",
            fix=suggestion(str(path[-1]), known) or "settings of the framework belong below `overrides:`",
        )
    if first["type"] == "missing":
        return ConfigError(f"'{name}' is missing", where=where, fix=f"add `{path[-1]}:`")
    given = at(document.data, path)
    fix = _of_these(given, first) if first["type"] == "literal_error" else _FIXES.get(first["type"], _NESTED)
    return ConfigError(f"'{name}' is {given!r}", where=where, why=first["msg"], fix=fix)


def _of_these(given: Any, error: Any) -> str:
    known = str(error["ctx"]["expected"]).replace("'", "").replace(" or ", ", ").split(", ")
    return suggestion(str(given), known) or f"write one of: {', '.join(known)}"


_NESTED = "write keys and values below it, indented"
_FIXES = {"string_type": "write text, in quotes where it looks like a number"}


def _stands(data: Any, path: Path) -> bool:
    around = at(data, path[:-1])
    return not path or (isinstance(around, Mapping) and path[-1] in around)


def _fields_beside(path: Path) -> list[str]:
    return sorted(Module.model_fields if len(path) > 2 else Experiment.model_fields)


_MODULES = {"pretrain": "pre_trainer", "posttrain": "post_trainer", "sft": "sft_trainer"}


def select(experiment: Experiment, stage: str, document: Document) -> str:
    """The name of the module that `train <stage>` runs: `pre_trainer` for pretrain, or the only trainer there is.

    Raises:
        ConfigError: there is none, or more than one and none has the stage's name.
    """
    wanted = _MODULES.get(stage, f"{stage}_trainer")
    trainers = [name for name in experiment.modules if "trainer" in name]
    if wanted in trainers:
        return wanted
    if len(trainers) == 1:
        return trainers[0]
    raise ConfigError(
        f"no module to {stage}",
        where=document.where(("modules",)),
        why=f"modules: {', '.join(experiment.modules) or 'none'}",
        fix=f"call it '{wanted}'",
    )


class Models(Protocol):
    """Models that are known by name beside a backend's presets: the catalogue, in the backend's words."""

    def names(self) -> Sequence[str]:
        """All names."""

    def read(self, name: str, where: str) -> Document:
        """The settings of one; `where` the experiment says its name."""

    def read_file(self, path: str, where: str) -> Document:
        """The settings of the one model in a file of the catalogue's form."""


@dataclass(frozen=True, slots=True)
class _Presets:
    """Where preset names are looked up: the backend's folder, and beside the experiment for `./name.yaml`."""

    folder: str
    beside: str
    environ: Mapping[str, str]
    models: Models | None

    def read(self, kind: str, name: str, where: str) -> Document:
        others = self.models if kind == "models" else None
        if others and not self._found(kind, name) and _stem(name) in others.names():
            return others.read(_stem(name), where)
        path = self._path(kind, name, where)
        document = files.read_extended(path, self.environ)
        if others and "models" in document.data:
            return replace(others.read_file(path, where), files=document.files)
        return document

    def _path(self, kind: str, name: str, where: str) -> str:
        if name.startswith("./"):
            path = os.path.normpath(os.path.join(self.beside, name))
            if not path.startswith(os.path.normpath(self.beside) + os.sep) and os.path.normpath(self.beside) != ".":
                raise _escape(name, where)
            if ".." in name.split("/"):
                raise _escape(name, where)
            if not os.path.isfile(path):
                raise ConfigError(f"there is no file '{name}' beside the experiment", where=where)
            return path
        if not _PRESET.fullmatch(name):
            raise _escape(name, where)
        return self._named(kind, name, where)

    def _named(self, kind: str, name: str, where: str) -> str:
        if path := self._found(kind, name):
            return path
        known = sorted(os.path.splitext(entry)[0] for entry in _entries(os.path.join(self.folder, kind)))
        others = self.models.names() if self.models and kind == "models" else ()
        named = [*known, "all of `primus models list`"] if others else known
        noun = {"models": "model", "modules": "framework preset"}[kind]
        raise ConfigError(
            f"unknown {noun} '{name}'",
            where=where,
            why=f"known: {', '.join(named) or 'none'}",
            fix=suggestion(_stem(name), [*known, *others])
            or "or write it out, or name a file beside this one: ./name.yaml",
        )

    def _found(self, kind: str, name: str) -> str:
        """The preset's file; empty where there is none."""
        paths = (os.path.join(self.folder, kind, _stem(name) + suffix) for suffix in _SUFFIXES)
        return next(filter(os.path.isfile, paths), "")


def _stem(name: str) -> str:
    return name[: name.rindex(".")] if name.endswith(_SUFFIXES) else name


def _entries(folder: str) -> list[str]:
    return [entry for entry in os.listdir(folder) if entry.endswith(_SUFFIXES)] if os.path.isdir(folder) else []


def _escape(name: str, where: str) -> ConfigError:
    return ConfigError(
        f"'{name}' is no preset name",
        where=where,
        why="a preset's name has no '/' and no '..'",
        fix="use a plain name, or ./file.yaml for a file beside the experiment",
    )


def merged(
    document: Document,
    module: str,
    *,
    folder: str,
    environ: Mapping[str, str],
    beside: str,
    command_line: Document,
    models: Models | None = None,
) -> Document:
    """The module's settings, all four sources merged: the model's below `model`, data below `data`.

    A preset in `folder` wins over one of `models` with its name.
    """
    presets = _Presets(folder, beside, environ, models)
    path: Path = ("modules", module)
    model = _source(document, (*path, "model"), lambda n, w: presets.read("models", n, w)).below(("model",))
    config = _source(document, (*path, "config"), lambda n, w: presets.read("modules", n, w)).nested()
    data = document.section((*path, "data")).below(("data",)) if at(document.data, (*path, "data")) else Document()
    overrides = document.section((*path, "overrides")).nested()
    return command_line.over(overrides.over(data.over(config.over(model))))


def _source(document: Document, path: Path, read: Callable[[str, str], Document]) -> Document:
    value = at(document.data, path)
    return read(value, document.where(path)) if isinstance(value, str) else document.section(path)
