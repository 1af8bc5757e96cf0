"""Experiment templates: settings that suit a model, a backend and a GPU, as data of the backends' packages.

    extends: template:megatron/llama3.1_8B/MI300X

An entry point of the group `primus.recipes` has a backend's name and leads to a folder. A file in it has a model's
name, and a section for each GPU; a file whose name begins with `_` is one that others extend.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from primus_core.config import files
from primus_core.config.document import Document
from primus_core.errors import ConfigError, Mistakes, RequestError, suggestion
from primus_core.installed import data_folders
from primus_core.installed.data_folders import Folder
from primus_machine import packages
from primus_train.templates.recipe import MODULE, Template, read

__all__ = ["document", "extended", "find", "folders", "known"]

_GROUP = "primus.recipes"
_SUFFIX = ".yaml"
_LIST = "`primus config list` lists all templates"


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
    return tuple(template for backend, model in rows for template in read(backend, model, *found[backend][model]))


def find(name: str, where: str = "") -> Template:
    """The template that `name` means; the model may be called by an alias of the catalogue.

    Raises:
        ConfigError: there is none, or its file is wrong.
    """
    backend, model, gpu = _parts(name, where)
    models = _files().get(backend)
    if models is None:
        raise _without(backend, where)
    meant = _spelt(model, models)
    meant = meant if meant in models else _meant(model)
    if meant not in models:
        raise _without_model(backend, model, meant, where)
    templates = {template.variant: template for template in read(backend, meant, *models[meant])}
    gpu = _spelt(gpu, templates)
    if gpu not in templates:
        raise _unknown(f"{meant} with {backend} on '{gpu}'", gpu, templates, where)
    return templates[gpu]


def _spelt(name: str, known: Iterable[str]) -> str:
    """The one of `known` that is `name` but for capital letters; else `name`."""
    return next((one for one in known if one.lower() == name.lower()), name)


def document(name: str, where: str = "") -> Document:
    """The experiment that `name` means. Of a backend that is not installed only what the name says: it is planned again
    where that is.

    Raises:
        ConfigError: there is no such template, or its file is wrong.
    """
    backend, model, _ = _parts(name, where)
    if backend in _files() or backend in {entry.name for entry in packages.entry_points("primus.backends")}:
        return find(name, where).document()
    stub = {"exp_name": f"{model}-pretrain", "modules": {MODULE: {"framework": backend}}}
    return Document(stub, {(): where, ("modules", MODULE, "framework"): where})


def extended(path: str, environ: Mapping[str, str], chain: tuple[str, ...] = ()) -> tuple[Template, ...]:
    """The templates that an experiment extends, the strongest last. A circle of files ends: `files` reports it.

    Raises:
        ConfigError: one of them is not here.
    """
    if path.startswith(files.TEMPLATE):
        return (find(path),)
    if (real := os.path.realpath(path)) in chain:
        return ()
    document = files.read(path, environ, Mistakes())  # what is wrong with a value is for those who read it
    where, found = document.where(("extends",)), []
    for base in files.bases(document):
        if base.startswith(files.TEMPLATE):
            found.append(find(base, where))
        else:
            found += extended(os.path.join(os.path.dirname(path), base), environ, (*chain, real))
    return tuple(found)


def _parts(name: str, where: str) -> tuple[str, str, str]:
    parts = name.removeprefix(files.TEMPLATE).split("/")
    if len(parts) != 3 or not all(parts):
        fix = f"write {files.TEMPLATE}BACKEND/MODEL/GPU; {_LIST}"
        raise ConfigError(f"'{name}' is not the name of a template", where=where, fix=fix)
    return parts[0], parts[1], parts[2]


def _without(backend: str, where: str) -> ConfigError:
    """The error for a backend that brings no templates, most often because it is not installed."""
    from primus_core.plugins.catalogue import Catalogue  # only an error needs it
    from primus_machine.host import HostRoot
    from primus_train.backend import missing_backend

    catalogue = Catalogue.here(HostRoot())
    if backend in catalogue.names("backends"):
        return _unknown(f"the backend '{backend}'", backend, _files(), where)
    return missing_backend(catalogue, backend, where)


def _without_model(backend: str, model: str, meant: str, where: str) -> ConfigError:
    """The error for a model without a template: why, where the backend cannot build it, and which backend has one."""
    error = _unknown(f"the model '{model}' with {backend}", model, _files()[backend], where)
    if refused := _refused(backend, meant):
        error.why = f"{refused.what}: {refused.why}"
    if others := [f"{files.TEMPLATE}{name}/{meant}/GPU" for name, models in _files().items() if meant in models]:
        error.fix = f"another backend has one: {', '.join(others)}"
    elif refused:
        error.fix = refused.fix
    return error


def _refused(backend: str, model: str) -> RequestError | None:
    """What the backend says of a model of the catalogue that it cannot build."""
    from primus_core.plugins.catalogue import Catalogue
    from primus_machine.host import HostRoot
    from primus_train.models import catalogue

    facts, catalogued = catalogue.load().get(model), Catalogue.here(HostRoot())
    if facts is None or backend not in catalogued.names("backends"):
        return None
    translate = getattr(catalogued.find("backends", backend).load(), "translate", None)
    try:
        if translate:
            translate(facts)
    except RequestError as error:
        return error
    return None


def _unknown(what: str, name: str, choices: Iterable[str], where: str) -> ConfigError:
    near = suggestion(name, choices)
    why = f"known: {', '.join(sorted(choices)) or 'none'}"
    return ConfigError(f"there is no template for {what}", where=where, why=why, fix=near or _LIST)


def _meant(model: str) -> str:
    """The name of the template for a model of another name or spelling."""
    from primus_train.models import catalogue  # a dozen files, for the rare name that is none of a file's

    wanted = catalogue.folded(model)
    if same := [name for models in _files().values() for name in models if catalogue.folded(name) == wanted]:
        return same[0]
    found = catalogue.named(model, catalogue.load())
    return found.name if found else model


@packages.once
def _files() -> Mapping[str, Mapping[str, tuple[str, str]]]:
    """The file of each model and its package, by backend."""
    found: dict[str, dict[str, tuple[str, str]]] = {}
    for folder in folders():
        models = found.setdefault(folder.name, {})
        for path in data_folders.files(folder, "templates", (_SUFFIX,)):
            model = os.path.basename(path).removesuffix(_SUFFIX)
            if model.startswith("_"):
                continue
            if model in models:
                why = f"the other is of {models[model][1]}: {models[model][0]}"
                raise ConfigError(f"two templates are for {model} with {folder.name}", where=path, why=why)
            models[model] = path, folder.source
    return found
