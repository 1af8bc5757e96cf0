"""Where the names of presets are looked up: the backend's, AMD's, the catalogue, files beside the experiment."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from primus_core.config import files
from primus_core.config.document import REFUSED, Document, at
from primus_core.errors import ConfigError, Mistakes, nearest
from primus_machine.documents import bounds
from primus_machine.files import trust
from primus_train.released import Released

__all__ = ["Models", "Presets", "read"]

_PRESET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
_SUFFIXES = (".yaml", ".yml", ".toml")
_PRECISIONS = ("bf16", "fp8")
"""What AMD's names of models may end in, after a hyphen."""
_DOTTED = ("overrides", "config")
"""The parts of a module whose keys may be dotted."""


def read(
    path: str,
    environ: Mapping[str, str],
    *,
    mistakes: Mistakes | None = None,
    opener: bounds.Opener | None = None,
) -> Document:
    """An experiment with what it extends, templates among it (`config.files.read_extended`).

    Dotted keys of its settings are written out: a file that extends it may write them otherwise.
    """
    return files.read_extended(path, environ, mistakes=mistakes, opener=opener, template=_template, each=_written_out)


def _written_out(document: Document, mistakes: Mistakes) -> Document:
    modules, marks = document.data.get("modules"), dict(document.marks)
    for name, module in modules.items() if isinstance(modules, Mapping) else ():
        for key in [key for key in _DOTTED if isinstance(at(module, (key,)), Mapping)]:
            section, module[key] = document.section(("modules", name, key)), REFUSED
            with mistakes:  # with one, it stays refused
                settings = section.nested()
                module[key] = settings.data
                marks |= settings.below(("modules", name, key)).marks
    return document._replace(marks=marks)


def _nested(document: Document, _: Mistakes) -> Document:
    return document.nested()


def _template(name: str, where: str) -> Document:
    from primus_train.templates import catalogue  # a search for folders: only where one is named

    return catalogue.document(name, where)


class Models(Protocol):
    """Models that are known by name beside a backend's presets: the catalogue, in the backend's words."""

    def names(self) -> Sequence[str]:
        """All names."""

    def read(self, name: str, where: str) -> Document:
        """The settings of one; `where` the experiment says its name."""

    def read_file(self, path: str, where: str) -> Document:
        """The settings of the one model in a file of the catalogue's form."""


@dataclass(frozen=True, slots=True)
class Presets:
    """Where preset names are looked up: the backend's folder, and beside the experiment for `./name.yaml`."""

    folder: str
    beside: str
    environ: Mapping[str, str]
    models: Models | None
    released: Released | None = None
    """AMD's presets, where the module names one of them."""

    def read(self, kind: str, name: str, where: str) -> Document:
        if self.released and (found := self.released.read(kind, name)):
            return found
        others = self.models if kind == "models" else None
        if others and not self._found(kind, name) and _stem(name) in others.names():
            return others.read(_stem(name), where)
        plain, _, precision = _stem(name).rpartition("-")
        if (
            kind == "models"
            and precision.lower() in _PRECISIONS
            and not name.startswith("./")
            and not self._knows(name)
        ):
            return self._in_precision(plain, precision, where)
        path = self._path(kind, name, where)
        own = name.startswith("./")  # the others are of the backend's package, whoever installed it
        opener = trust.of(self.environ).opener if own else None
        each = _nested if kind == "modules" else None
        document = files.read_extended(path, self.environ, opener=opener, template=_template, each=each)
        if others and "models" in document.data:
            return others.read_file(path, where)._replace(files=document.files)
        return document

    def _in_catalogue(self, name: str) -> str:
        """Return the catalogue's name for it, in whichever case it is written; empty: it has no such model."""
        names = self.models.names() if self.models else ()
        return next((one for one in names if one.lower() == _stem(name).lower()), "")

    def _knows(self, model: str) -> bool:
        released = self.released and self.released.read("models", model)
        return bool(released or self._found("models", model) or self._in_catalogue(model))

    def _in_precision(self, plain: str, precision: str, where: str) -> Document:
        """Return the model `plain`, in BF16 as it is, in FP8 with what AMD's model files add for it.

        Raises:
            ConfigError: there is no such model, or the backend has none in FP8.
        """
        if not self._knows(plain):
            raise self._unknown("models", plain, where, end=f"-{precision}")
        found = self.read("models", self._in_catalogue(plain) or plain, where)
        if precision.lower() == "bf16":
            return found
        release = self.released or Released.newest(self.folder)
        if not (added := release.fp8() if release else {}):
            raise ConfigError(
                f"unknown model '{plain}-{precision}'",
                where=where,
                why="the models of this framework have no FP8 of their own: settings switch it on",
                fix=f"write `model: {plain}`, and its settings for FP8 below `overrides:`",
            )
        data = {key: [*found.data.get(key, ()), *value] for key, value in added.items()}
        return Document(data, dict.fromkeys([(key,) for key in data], where)).merged_onto(found)

    def _path(self, kind: str, name: str, where: str) -> str:
        if name.startswith("./"):
            path = os.path.normpath(os.path.join(self.beside, name))
            if not path.startswith(os.path.normpath(self.beside) + os.sep) and os.path.normpath(self.beside) != ".":
                raise _escape(name, where)
            if ".." in name.split("/"):
                raise _escape(name, where)
            if not os.path.isfile(path):
                raise files.missing_file(name, where=where, folder=self.beside)
            trust.of(self.environ).require(path, "the preset")
            return path
        if not _PRESET.fullmatch(name):
            raise _escape(name, where)
        return self._named(kind, name, where)

    def _named(self, kind: str, name: str, where: str) -> str:
        if path := self._found(kind, name):
            return path
        raise self._unknown(kind, name, where)

    def _unknown(self, kind: str, name: str, where: str, end: str = "") -> ConfigError:
        """Return the error for a name, of which `end` was set aside."""
        known = sorted(os.path.splitext(entry)[0] for entry in _entries(os.path.join(self.folder, kind)))
        others = self.models.names() if self.models and kind == "models" else ()
        named = [*known, "all of `primus models list`"] if others else known
        noun = {"models": "model", "modules": "framework preset"}[kind]
        alike = nearest(_stem(name), [*known, *others])
        return ConfigError(
            f"unknown {noun} '{name}{end}'",
            where=where,
            why=f"known: {', '.join(named) or 'none'}",
            fix=f"did you mean '{alike}{end}{name[len(_stem(name)) :]}'?"
            if alike
            else "name one of these, write its settings here, or name a file beside this one: ./name.yaml",
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
        f"'{name}' is not the name of a preset",
        where=where,
        why="a preset's name has no '/' and no '..'",
        fix="use a plain name, or ./file.yaml for a file beside the experiment",
    )
