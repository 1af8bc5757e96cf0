"""The `data` section: what is trained on, prepared by a step of the plan before the worker starts."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

from primus_core.config.document import Document
from primus_core.errors import ConfigError
from primus_core.plan.plan import Step
from primus_data.training import SEED, section
from primus_data.training.corpora import FOLDER, Corpus, Prefixes, Text
from primus_data.training.files import STDLIB
from primus_torchtitan.model import Model
from primus_torchtitan.own_settings import DATA
from primus_torchtitan.settings import Settings
from primus_train.backend import BackendCall
from primus_train.overrides import typed_words
from primus_train.paths import PathKind

__all__ = ["DATASET", "TAKEN", "Data"]

DATASET = "primus_indexed"
"""What `dataloader.dataset` is called when the worker reads `.bin`/`.idx` (`indexed_loader`)."""
_OF_STDLIB = 50_000
"""So many tokens the text of the standard library gives, and not many more."""
TAKEN = ("dataloader.dataset", "dataloader.dataset_path")

_OF_WORKERS = tuple(
    f"dataloader.{name}" for name in ("num_workers", "persistent_workers", "pin_memory", "prefetch_factor")
)


PATHS: Mapping[str, PathKind] = {
    "hf_assets_path": "path",
    "dataloader.dataset_path": "name",
    "checkpoint.initial_load_path": "path",
}
"""Settings that are paths. A data set may be a name on huggingface.co."""


class Data:
    """What the section names. `corpus` None: the experiment uses a dataset of TorchTitan."""

    def __init__(self, document: Document, call: BackendCall) -> None:
        """Read the section.

        Raises:
            ConfigError: a name or a value is wrong, or one is missing.
        """
        self.document, self.call = document, call
        seed = (document.data or {}).get("seed")
        self.corpus: Corpus | None = section.resolve(document, DATA, call, "TorchTitan", is_model_known=False)
        self.seed: int = SEED if seed is None else seed

    @property
    def vocab_size(self) -> int | None:
        """That of a tokenizer that is trained, where the section says it."""
        return (self.corpus.vocab_size or None) if isinstance(self.corpus, Text) else None

    def apply(self, model: Model, settings: Settings) -> tuple[Step, ...]:
        """The steps that prepare the data; TorchTitan is told to read the result.

        Raises:
            ConfigError: model and data disagree about the vocabulary, or the data is named twice.
            MachineError: files that are here cannot be trained on.
        """
        if self.corpus is None:
            return ()
        is_text = isinstance(self.corpus, Text)
        if settings["training.mock_data"]:
            what = "'training.mock_data' and the section `data` both set the training data"
            fix = "keep one of them; to train on `data`: training.mock_data=false"
            raise settings.error("training.mock_data", what, fix=fix)
        twice = [name for name in (*TAKEN, *(("hf_assets_path",) if is_text else ())) if name in settings]
        for name in twice:
            what = f"'{name}' and the section `data` both set the training data"
            error = settings.error(name, what, fix=f"keep one of them; to train on `data`: {name}=null")
            settings.mistakes.add(error)
        if twice:
            return ()
        known: int = model.facts.get("vocab_size") or 0
        if isinstance(self.corpus, Text):
            self.corpus = dataclasses.replace(self.corpus, vocab_size=self._vocabulary(model))
            settings.set("hf_assets_path", os.path.join(self.call.place.directory, FOLDER))
        if isinstance(self.corpus, Prefixes):
            section.refuse_faults(self.corpus, self.document, self.call, known)
        settings.set("dataloader.dataset", DATASET)
        if "validation" in self.corpus.told(self.call):
            settings.default("validator.dataloader.dataset", DATASET)
        elif settings["validator.enable"] and "validator.dataloader.dataset" not in settings:
            other = "set data.valid_data_path, or " if isinstance(self.corpus, Prefixes) else "set "
            fix = f"{other}data.split=98,2: shares to train and to validate on\nor validator.enable=false"
            raise settings.error("validator.enable", "there is no data for the validation", fix=fix)
        return self.corpus.steps(self.call, known)

    def without_effect(self, settings: Settings) -> list[str]:
        """Settings of TorchTitan's data loader that were given, and that Primus's own ignores."""
        return [name for name in _OF_WORKERS if self.corpus and name in settings]

    def to_dict(self) -> dict[str, Any] | None:
        """What a later run compares."""
        return self.corpus.to_dict() if self.corpus else None

    def told(self) -> dict[str, Mapping[str, Any]] | None:
        """What the worker reads to train and to validate."""
        if self.corpus is None:
            return None
        return {part: {**told, "seed": self.seed} for part, told in self.corpus.told(self.call).items()}

    def _vocabulary(self, model: Model) -> int:
        wanted, known = self.vocab_size, model.facts.get("vocab_size") or 0
        if wanted and known and wanted != known:
            raise self._other_vocabulary(wanted, known, model)
        vocab = wanted or known
        if not vocab:
            raise ConfigError(
                "neither data.vocab_size nor model.vocab_size is set",
                where=self.document.where(()),
                fix="set data.vocab_size, for instance to 4096",
            )
        return vocab

    def _other_vocabulary(self, wanted: int, known: int, model: Model) -> ConfigError:
        """The error for a tokenizer and a model that differ. What the model says without a setting, nobody removes."""
        where = self.document.where(("vocab_size",))
        is_own = "vocab_size" in self.call.document.section(("model",)).data
        why = "the tokenizer's tokens are the rows of the model's embedding"
        why += "" if is_own else f"; {model.name} has {known} of them by itself"
        # The standard library gives far fewer tokens than a large model has.
        without = f"data.vocab_size=null, if the text is enough for a tokenizer of {known} tokens"
        fits = isinstance(self.corpus, Text) and not (self.corpus.source == STDLIB and known > _OF_STDLIB)
        fixes = [f"model.vocab_size={wanted}"] * model.takes_sizes + [without] * (fits or not model.takes_sizes)
        typed = typed_words(where) if model.takes_sizes and not is_own else []
        dashes = "--" * typed[0].startswith("--") if typed else ""
        return ConfigError(
            f"data.vocab_size is {wanted}, and model.vocab_size is {known}",
            where=where,
            why=why,
            fix="\nor ".join(fixes),
            options=typed,
            meant=f"{dashes}data.vocab_size={wanted} {dashes}model.vocab_size" if typed else None,
        )
