"""The catalogue's models in a backend's words: what `model: NAME` of an experiment is where no preset has the name."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from primus_core.backend import Backend
from primus_core.config.document import Document
from primus_core.errors import ConfigError, RequestError
from primus_core.models import catalogue
from primus_core.models.architecture import Model

__all__ = ["Translated"]


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
        model = self._models[name]
        try:
            settings = dict(self.backend.translate(model))
        except ConfigError:
            raise
        except RequestError as error:
            raise ConfigError(error.what, where=where, why=error.why, fix=error.fix) from None
        return Document(settings, dict.fromkeys([(), *((key,) for key in settings)], model.where))
