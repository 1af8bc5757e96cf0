"""Experiment templates: settings that suit a model, a backend and a GPU, as data of the backends' packages.

    extends: template:megatron/llama3.1_8B/MI300X

An entry point of the group `primus.recipes` has a backend's name and leads to a folder. A file in it has a model's
name, and a section for each GPU; a file whose name begins with `_` is one that others extend.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from primus_core import data_folders, metadata
from primus_core.config import files
from primus_core.config.document import Document, Path, at, dotted
from primus_core.data_folders import Folder
from primus_core.errors import ConfigError, suggestion

__all__ = ["GPUS_PER_NODE", "MODULE", "Template", "document", "extended", "find", "folders", "known", "leaves"]

GPUS_PER_NODE = 8
"""Of every machine that templates are for."""
MODULE = "pre_trainer"
_GROUP = "primus.recipes"
_SUFFIX = ".yaml"
_LIST = "`primus config list` names all"


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class _Part(_Strict):
    """What stands for all GPUs or, below `gpus:`, for one of them, which wins."""

    settings: dict[str, Any] = Field(default_factory=dict)
    source: str = ""
    """Where the numbers are published: a URL, or `name:rest` with a name of `sources`."""
    derived: str | dict[str, str] = Field(default_factory=dict)
    """Why a setting has its value although nobody published or measured it; text: so it is with all of them."""
    nodes: Annotated[int, Field(gt=0)] | None = None
    """How many nodes of eight GPUs it is for."""


class _Recipe(_Part):
    """A file: one model with one backend."""

    config: str = ""
    """The framework preset that it stands on."""
    model: dict[str, Any] | None = None
    """The model, written out, where the backend knows none by the name of the file."""
    sources: dict[str, str] = Field(default_factory=dict)
    """What a name in `source` stands for; `{gpu}` is the GPU."""
    gpus: dict[str, _Part]


@dataclass(frozen=True, slots=True)
class Template:
    """One model, backend and GPU."""

    backend: str
    model: str
    gpu: str
    nodes: int
    config: str
    written_out: Mapping[str, Any] | None
    """The model's settings, where the backend does not know it by name."""
    settings: Document
    source: str
    """Where its numbers are published; empty: nowhere."""
    derived: Mapping[str, str]
    """Settings that are not from there, by dotted name, and why they are as they are."""
    because: str
    """Why the whole is as it is, where nothing is published; or empty."""
    origin: str
    """The package: `primus-megatron 0.1.0`."""
    where: str

    @property
    def name(self) -> str:
        """As `extends:` says it."""
        return f"{files.TEMPLATE}{self.backend}/{self.model}/{self.gpu}"

    def document(self) -> Document:
        """An experiment, whole but for what is a person's own."""
        model = self.model if self.written_out is None else dict(self.written_out)
        module: dict[str, Any] = {"framework": self.backend, "model": model}
        module |= {"config": self.config} if self.config else {}
        data = {"exp_name": f"{self.model}-pretrain", "modules": {MODULE: module}}
        head = Document(data, {(): self.where, **{path: self.where for path, _ in leaves(data)}})
        return self.settings.below(("modules", MODULE, "overrides")).over(head)


def folders() -> tuple[Folder, ...]:
    """The folders of templates that installed packages bring."""
    return tuple(dict.fromkeys(data_folders.installed(_GROUP)))


def known() -> tuple[Template, ...]:
    """Every template, by backend, model and GPU.

    Raises:
        ConfigError: a file is wrong, or two are for one model and backend.
    """
    found = _files()
    rows = ((backend, model) for backend, models in sorted(found.items()) for model in sorted(models))
    return tuple(template for backend, model in rows for template in _read(backend, model, *found[backend][model]))


def find(name: str, where: str = "") -> Template:
    """The template that `name` means; the model may be called by an alias of the catalogue.

    Raises:
        ConfigError: there is none, or its file is wrong.
    """
    backend, model, gpu = _parts(name, where)
    models = _files().get(backend)
    if models is None:
        raise _without(backend, where)
    meant = model if model in models else _meant(model)
    if meant not in models:
        raise _unknown(f"the model '{model}' with {backend}", model, models, where)
    templates = {template.gpu: template for template in _read(backend, meant, *models[meant])}
    if gpu not in templates:
        raise _unknown(f"{meant} with {backend} on '{gpu}'", gpu, templates, where)
    return templates[gpu]


def document(name: str, where: str = "") -> Document:
    """The experiment that `name` means. Of a backend that is not installed only what the name says: it is planned again
    where that is.

    Raises:
        ConfigError: there is no such template, or its file is wrong.
    """
    backend, model, _ = _parts(name, where)
    if backend in _files() or backend in {entry.name for entry in metadata.entry_points("primus.backends")}:
        return find(name, where).document()
    stub = {"exp_name": f"{model}-pretrain", "modules": {MODULE: {"framework": backend}}}
    return Document(stub, {(): where, ("modules", MODULE, "framework"): where})


def extended(path: str, environ: Mapping[str, str]) -> tuple[Template, ...]:
    """The templates that an experiment extends, the strongest last.

    Raises:
        ConfigError: one of them is not here.
    """
    if path.startswith(files.TEMPLATE):
        return (find(path),)
    document = files.read(path, environ)
    where, found = document.where(("extends",)), []
    for base in files.bases(document):
        if base.startswith(files.TEMPLATE):
            found.append(find(base, where))
        else:
            found += extended(os.path.join(os.path.dirname(path), base), environ)
    return tuple(found)


def leaves(data: Mapping[str, Any], before: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Each setting with its path; an empty section is one."""
    for key, value in data.items():
        if isinstance(value, Mapping) and value:
            yield from leaves(value, (*before, key))
        else:
            yield (*before, key), value


def _parts(name: str, where: str) -> tuple[str, str, str]:
    parts = name.removeprefix(files.TEMPLATE).split("/")
    if len(parts) != 3 or not all(parts):
        fix = f"write {files.TEMPLATE}BACKEND/MODEL/GPU; {_LIST}"
        raise ConfigError(f"'{name}' names no template", where=where, fix=fix)
    return parts[0], parts[1], parts[2]


def _without(backend: str, where: str) -> ConfigError:
    """The error for a backend that brings no templates, most often because it is not installed."""
    from primus_core.host import HostRoot
    from primus_core.plugins import Catalogue  # only an error needs it

    catalogue = Catalogue.here(HostRoot())
    if backend in catalogue.names("backends"):
        return _unknown(f"the backend '{backend}'", backend, _files(), where)
    missing = catalogue.missing("backends", backend)
    return ConfigError(missing.what, where=where, why=missing.why, fix=missing.fix)


def _unknown(what: str, name: str, choices: Iterable[str], where: str) -> ConfigError:
    near = suggestion(name, choices)
    why = f"known: {', '.join(sorted(choices)) or 'none'}"
    return ConfigError(f"there is no template for {what}", where=where, why=why, fix=near or _LIST)


def _meant(model: str) -> str:
    """The catalogue's name for an alias."""
    from primus_core.models import catalogue  # a dozen files, for the rare name that is none of a file's

    return next((m.name for m in catalogue.load().values() if model in m.facts.aliases), model)


@cache
def _files() -> Mapping[str, Mapping[str, tuple[str, Folder]]]:
    """The file of each model, by backend."""
    found: dict[str, dict[str, tuple[str, Folder]]] = {}
    for folder in folders():
        models = found.setdefault(folder.name, {})
        for path in data_folders.files(folder, "templates", (_SUFFIX,)):
            model = os.path.basename(path).removesuffix(_SUFFIX)
            if model.startswith("_"):
                continue
            if model in models:
                why = f"the other is of {models[model][1].source}: {models[model][0]}"
                raise ConfigError(f"two templates are for {model} with {folder.name}", where=path, why=why)
            models[model] = path, folder
    return found


@cache
def _read(backend: str, model: str, path: str, folder: Folder) -> tuple[Template, ...]:
    """The templates in a file."""
    document = files.read_extended(path, {})
    try:
        recipe = _Recipe.model_validate(document.data)
    except ValidationError as error:
        raise _explain(error, document) from None
    return tuple(_template(backend, model, gpu, recipe, document, folder.source) for gpu in recipe.gpus)


def _template(backend: str, model: str, gpu: str, recipe: _Recipe, document: Document, origin: str) -> Template:
    part = recipe.gpus[gpu]
    settings = document.section(("gpus", gpu, "settings")).over(document.section(("settings",)))
    because = _because(recipe, part)
    source = "" if because and not part.source else _expanded(part.source or recipe.source, recipe, gpu)
    template = Template(
        backend, model, gpu, part.nodes or recipe.nodes or 1, recipe.config, recipe.model, settings,
        source=source,
        derived={**_reasons(recipe), **_reasons(part)}, because=because, origin=origin,
        where=document.where(("gpus", gpu)),
    )  # fmt: skip
    _check(template, document)
    return template


def _because(recipe: _Recipe, part: _Part) -> str:
    said = part.derived if isinstance(part.derived, str) or part.source else recipe.derived
    return said if isinstance(said, str) else ""


def _reasons(part: _Part) -> Mapping[str, str]:
    return part.derived if isinstance(part.derived, dict) else {}


def _expanded(source: str, recipe: _Recipe, gpu: str) -> str:
    name, _, rest = source.partition(":")
    return (recipe.sources[name] + rest if name in recipe.sources else source).replace("{gpu}", gpu)


def _check(template: Template, document: Document) -> None:
    if not template.source and not template.because:
        raise ConfigError(
            f"{template.gpu}: nothing says where its numbers are from",
            where=template.where,
            fix="add `source:`, or `derived:` with the reason",
        )
    for name in template.derived:
        names = [dotted(path) for path, _ in leaves(template.settings.data)]
        if name not in names:
            everywhere = name in (at(document.data, ("derived",)) or ())
            section = ("derived",) if everywhere else ("gpus", template.gpu, "derived")
            raise ConfigError(
                f"'{name}' is derived, and not set",
                where=document.where((*section, name)),
                fix=suggestion(name, names) or "set it below `settings:`, or remove it",
            )


def _explain(error: ValidationError, document: Document) -> ConfigError:
    # A misspelt key before the key that it leaves missing: its message has the line and the suggestion.
    first = min(error.errors(), key=lambda e: e["type"] != "extra_forbidden")
    path: Path = tuple(first["loc"])
    where, name = document.where(path), dotted(path)
    if first["type"] == "extra_forbidden":
        keys = sorted((_Part if path[0] == "gpus" else _Recipe).model_fields)
        near = suggestion(str(path[-1]), keys) or "settings of the framework belong below `settings:`"
        return ConfigError(f"unknown key '{name}'", where=where, why=f"known here: {', '.join(keys)}", fix=near)
    if first["type"] == "missing":
        return ConfigError(f"'{name}' is missing", where=where, fix="docs/config.md has an example")
    return ConfigError(f"'{name}' is {first['input']!r}", where=where, why=first["msg"])
