"""The catalogue's models in a backend's words: what `model: NAME` of an experiment is where no preset has the name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property

from primus_core.config.document import Document
from primus_core.errors import ConfigError, RequestError
from primus_train.backend import Backend
from primus_train.models import catalogue
from primus_train.models.architecture import Model

__all__ = ["Translated"]

_WRITE_OUT = "write the model as settings of the framework"


class Translated:
    """Every model of the catalogue and of a person's `files`, as settings of one backend."""

    def __init__(self, backend: Backend, files: Sequence[str]) -> None:
        self.backend, self.files = backend, files

    @cached_property
    def _models(self) -> dict[str, Model]:
        if not hasattr(self.backend, "translate"):  # a backend of others may know no catalogue
            return {}
        models = catalogue.load(self.files).values()
        return {name: model for model in models for name in (model.name, *model.facts.aliases)}

    def names(self) -> Sequence[str]:
        """What the models are called, by their other names too."""
        return tuple(self._models)

    def read(self, name: str, where: str) -> Document:
        """The model's settings; each of them stands where the catalogue has the model.

        Raises:
            ConfigError: the framework cannot build it; `where` its name stands.
        """
        return self._settings(self._models[name], where)

    def read_file(self, path: str, where: str) -> Document:
        """The settings of the model in the file `path`, which has the catalogue's form.

        Raises:
            ConfigError: the file is wrong, has several models, or the framework cannot build its model.
        """
        with _errors_at(where):
            if hasattr(self.backend, "translate"):
                return self._settings(catalogue.find(path, {}), where)
            raise RequestError("the backend does not support models of the catalogue", fix=_WRITE_OUT)

    def _settings(self, model: Model, where: str) -> Document:
        with _errors_at(where):
            settings = dict(self.backend.translate(model))
        return Document(settings, dict.fromkeys([(), *((key,) for key in settings)], model.where))


@contextmanager
def _errors_at(where: str) -> Iterator[None]:
    """An error that has no place of its own stands where the model is named."""
    try:
        yield
    except ConfigError:
        raise
    except RequestError as error:
        raise ConfigError(error.what, where=where, why=error.why, fix=error.fix) from None
