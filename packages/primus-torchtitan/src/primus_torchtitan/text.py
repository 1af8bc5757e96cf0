"""The `data` section: text that is here already, prepared by a step of the plan before the worker starts."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from primus_core.config.document import Document
from primus_core.environment import resolve
from primus_core.errors import ConfigError
from primus_core.plan.plan import Requirement, Step
from primus_torchtitan.model import Model
from primus_torchtitan.own_settings import DATA
from primus_torchtitan.settings import Settings
from primus_train.backend import BackendCall
from primus_train.kit.settings import own_section
from primus_train.text.files import STDLIB

__all__ = ["TAKEN", "Text", "apply_text", "resolve_text"]

DATASET = "primus_text"
"""The name of the dataset that the worker registers (`text_dataset.NAME`)."""
TAKEN = ("hf_assets_path", "dataloader.dataset", "dataloader.dataset_path")


@dataclass(frozen=True, slots=True)
class Text:
    """The section as given."""

    source: str
    vocab_size: int | None
    document_chars: int
    cache: str
    document: Document

    def to_dict(self, vocab_size: int) -> dict[str, Any]:
        """What a later run compares."""
        return {"text": self.source, "vocab_size": vocab_size, "document_chars": self.document_chars}

    def requires(self) -> tuple[Requirement, ...]:
        """What it is read from, and the cache."""
        read = [] if self.source == STDLIB else [Requirement("file", self.source, "set data.text to text that is here")]
        return (*read, Requirement("folder", self.cache, "export PRIMUS_CACHE, or set data.cache"))


def resolve_text(document: Document, call: BackendCall) -> Text | None:
    """The section, or None where the experiment has none."""
    given = own_section(document, DATA, "data", "TorchTitan")
    if not given:
        return None
    if not given.get("text"):
        raise ConfigError(
            "`data` has no `text`",
            where=document.where(()),
            fix=f"set `data.text` to {STDLIB}, or to a folder of text files",
        )
    source = given["text"] if given["text"] == STDLIB else os.path.join(call.facts.cwd, given["text"])
    cache = given.get("cache") or os.path.join(resolve.cache(call.facts.environ), "data")
    return Text(
        source=source,
        vocab_size=given.get("vocab_size"),
        document_chars=given.get("document_chars", 0),
        cache=os.path.join(call.facts.cwd, cache),
        document=document,
    )


def apply_text(text: Text, model: Model, settings: Settings, call: BackendCall) -> tuple[Step, int]:
    """The step that prepares the text, and its vocabulary; TorchTitan is told to read the result.

    Raises:
        ConfigError: model and data disagree about the vocabulary, or the data is named twice.
    """
    for name in TAKEN:
        if name in settings:
            raise settings.error(name, f"'{name}' and 'data.text' both say what to train on", fix="keep one of them")
    vocab = _vocabulary(text, model)
    folder = os.path.join(call.place.directory, "data")
    settings.set("dataloader.dataset", DATASET)
    settings.set("dataloader.dataset_path", folder)
    settings.set("hf_assets_path", os.path.join(folder, "tokenizer"))
    if settings.default("validator.dataloader.dataset", DATASET):
        settings.default("validator.dataloader.dataset_path", os.path.join(folder, "validation"))
    argv = [call.facts.python, "-m", "primus_torchtitan.prepare_text", "--source", text.source]
    argv += ["--vocab-size", str(vocab), "--cache", text.cache, "--out", folder]
    argv += ["--document-chars", str(text.document_chars)] if text.document_chars else []
    return Step("prepare text", tuple(argv), call.facts.cwd), vocab


def _vocabulary(text: Text, model: Model) -> int:
    wanted: int | None = text.vocab_size
    known: int | None = model.facts.get("vocab_size")
    if wanted and known and wanted != known:
        raise ConfigError(
            f"data.vocab_size is {wanted}, and model.vocab_size is {known}",
            where=text.document.where(("vocab_size",)),
            why="the tokenizer's tokens are the rows of the model's embedding",
            fix="give one of them only, or both the same",
        )
    vocab = wanted or known
    if vocab is None:
        raise ConfigError(
            "neither data.vocab_size nor model.vocab_size is set",
            where=text.document.where(()),
            fix="set data.vocab_size, for instance to 4096",
        )
    return vocab
