"""All models that are known here: Primus's own in `data/models`, those of packages, and those of a person's files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence

from primus_core.errors import ConfigError, RequestError, suggestion
from primus_core.installed import data_folders
from primus_core.installed.data_folders import Folder
from primus_machine.packages import once
from primus_train.models.architecture import Model
from primus_train.models.files import SUFFIXES, read

__all__ = ["find", "folded", "load", "named"]

_FOLDER = os.path.join(os.path.dirname(__file__), "..", "data", "models")


def load(files: Sequence[str] = ()) -> Mapping[str, Model]:
    """Every model by its name: Primus's own, of installed packages, and of `files`. Aliases are not among the names.

    Raises:
        ConfigError: a file is wrong, or two models have one name.
    """
    return _by_name((*_of_packages(), *(model for path in files for model in read(path, os.path.relpath(path)))))


def find(name: str, models: Mapping[str, Model]) -> Model:
    """The model called `name`, here or on huggingface.co, or the one in the file of that path.

    Raises:
        RequestError: there is none.
        ConfigError: the file is wrong.
    """
    if found := named(name, models):
        return found
    if os.sep in name or name.endswith(SUFFIXES):
        return _only(name, read(name, name))
    fix = suggestion(name, _names(models)) or "`primus models list` lists all models; or name a file with one model"
    raise RequestError(f"no model is called '{name}'", why=f"{len(models)} are known here", fix=fix)


def named(name: str, models: Mapping[str, Model]) -> Model | None:
    """The model of that name, here or on huggingface.co, in capital letters or small ones, with `-` or `_`."""
    known = _names(models)
    of_hub = {name: model for model in models.values() for name in (model.facts.hf, os.path.basename(model.facts.hf))}
    spelt = {folded(one): model for one, model in {**of_hub, **known}.items() if one}
    return known.get(name) or spelt.get(folded(name))


def folded(name: str) -> str:
    """The name as it is compared."""
    return name.lower().replace("-", "_")


def _names(models: Mapping[str, Model]) -> Mapping[str, Model]:
    aliases = {alias: model for model in models.values() for alias in model.facts.aliases}
    return {**aliases, **models}


def _only(path: str, models: Sequence[Model]) -> Model:
    if len(models) == 1:
        return models[0]
    names = ", ".join(model.name for model in models)
    fix = f"name the file below `models:` in primus.yaml (models: [{path}]), and give one of the names"
    raise RequestError(f"{path} has {len(models)} models", why=names, fix=fix)


@once
def _of_packages() -> tuple[Model, ...]:
    folders = (Folder(os.path.normpath(_FOLDER), "Primus"), *dict.fromkeys(data_folders.installed("primus.models")))
    return tuple(model for folder in folders for model in _in_folder(folder))


def _in_folder(folder: Folder) -> Iterator[Model]:
    for path in data_folders.files(folder, "models", SUFFIXES):
        try:
            yield from read(path, folder.source)
        except ConfigError as error:
            error.why = f"{error.why}\nit is a model file of {folder.source}".lstrip("\n")
            raise


def _by_name(models: Iterable[Model]) -> dict[str, Model]:
    found: dict[str, Model] = {}
    taken: dict[str, Model] = {}
    for model in models:
        for name in (model.name, *model.facts.aliases):
            if other := taken.get(name):
                raise ConfigError(
                    f"two models are called '{name}'",
                    where=model.where,
                    why=f"the other is of {other.origin}: {other.where}",
                    fix="rename this one",
                )
            taken[name] = model
        found[model.name] = model
    return found
