"""What to train on: text that a step prepares, `.bin`/`.idx` files, or one of MaxText's own pipelines."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from primus_core.config.document import Document
from primus_core.plan.plan import Requirement, Step
from primus_data.training import SEED, section
from primus_data.training.corpora import Corpus, Prefixes, Text
from primus_maxtext.own_settings import DATA
from primus_maxtext.settings import TAKEN, Settings
from primus_train.backend import BackendCall
from primus_train.overrides import is_typed
from primus_train.paths import PathKind

__all__ = ["Data", "is_unsplit", "refuse_evaluation"]

_MADE_UP = "synthetic"
"""Templates say so, to run as they stand; data of one's own take its place."""
_FILES = {
    "grain": ("grain_train_files", "grain_eval_files", "grain_train_mixture_config_path"), "hf": ("hf_train_files",),
}  # fmt: skip
_MODULES = {"tfds": ("tensorflow", "tensorflow_datasets"), "c4_mlperf": ("tensorflow", "tensorflow_datasets"),
            "hf": ("datasets",)}  # fmt: skip
_TOKENIZERS = (
    "tokenizer.default", "tokenizer.gemma", "tokenizer.gemma3", "tokenizer.llama2", "tokenizer.mistral-v1",
    "tokenizer.mistral-v3", "tokenizer_gemma4.model", "tokenizer_llama3.tiktoken",
)  # fmt: skip
"""In MaxText's wheel; it finds them by the last part of any path."""


PATHS: Mapping[str, PathKind] = {
    "jax_cache_dir": "output",
    **dict.fromkeys(("load_parameters_path", "load_full_state_path"), "path"),
    **dict.fromkeys(("grain_train_mixture_config_path", "hf_train_files", "hf_eval_files"), "mixture"),
    **dict.fromkeys(("grain_train_files", "grain_eval_files"), "mixture"),
    **dict.fromkeys(("tokenizer_path", "model.tokenizer_path"), "name"),
}
"""Settings that are paths. A tokenizer may be one of MaxText's, or a name on huggingface.co."""


class Data:
    """What the experiment trains on."""

    def __init__(self, document: Document, call: BackendCall) -> None:
        self.call, self.document = call, document
        self.corpus: Corpus | None = section.resolve(document, DATA, call, "MaxText")

    @property
    def text(self) -> Text | None:
        """Text that has a tokenizer of its own."""
        return self.corpus if isinstance(self.corpus, Text) else None

    def model(self, model: Document) -> Document:
        """The `model` section without what prepared text replaces."""
        gone = ("vocab_size", "tokenizer_path", "tokenizer_type") if self.text else ()
        return Document({name: value for name, value in model.data.items() if name not in gone}, model.marks)

    def to_dict(self) -> dict[str, Any] | None:
        """What a later run compares."""
        return self.corpus.to_dict() if self.corpus else None

    def told(self) -> Mapping[str, Any] | None:
        """What the worker reads to train and to evaluate."""
        return self.corpus.told(self.call) if self.corpus else None

    def apply(self, settings: Settings) -> tuple[tuple[Step, ...], list[Requirement]]:
        """Tell MaxText what to read: the steps that prepare it, and what must be there.

        Raises:
            ConfigError: there is nothing to train on, or it is named twice.
            MachineError: files that are there cannot be trained on.
        """
        if self.corpus is None:
            return (), self._own_pipeline(settings)
        same = (_MADE_UP, "", self.text.vocab_size if self.text else None)
        for name in (*TAKEN, *(["vocab_size"] if self.text else [])):
            if name in settings and (settings[name] not in same or _is_asked(settings, name)):
                what = f"'{name}' and the section `data` both set the training data"
                fix = "keep one of them" + (f"; to train on `data`: {name}=null" if name in TAKEN else "")
                raise settings.error(name, what, fix=fix)
        if self.text:
            settings.set("vocab_size", self.text.vocab_size)
        if isinstance(self.corpus, Prefixes):
            section.refuse_faults(self.corpus, self.document, self.call, settings["vocab_size"])
        self._read(settings, self.corpus)
        return self.corpus.steps(self.call, settings["vocab_size"]), list(self.corpus.requires())

    def _read(self, settings: Settings, corpus: Corpus) -> None:
        """`indexed_input` reads the samples; these settings only say so in MaxText's words."""
        told = corpus.told(self.call)
        settings.set("dataset_type", "grain")
        settings.set("grain_file_type", "mmap_npy")
        settings.default("data_shuffle_seed", SEED)
        settings.default("reset_attention_mask", False)
        for name, part in (("grain_train_files", "train"), ("grain_eval_files", "validation")):
            settings.set(name, ";".join(prefix for _, prefix in told[part]["blend"]) if part in told else "")
        if "validation" not in told:
            with settings.mistakes:
                refuse_evaluation(settings, "set data.valid_data_path, or " * isinstance(corpus, Prefixes))
        if corpus.eod is not None:
            settings.set("mmap_eod_id", corpus.eod)
            return
        for name in ("reset_attention_mask", "eod_mask_loss"):
            if settings[name]:
                what, why = "'data.eod_id' is not set", f"'{name}' needs the token that ends a document"
                raise settings.error(name, what, why=why, fix=f"set data.eod_id, or {name}: false")

    def _own_pipeline(self, settings: Settings) -> list[Requirement]:
        """A data set in MaxText's own words."""
        kind = settings["dataset_type"]
        if "dataset_type" not in settings:
            raise settings.error(
                "dataset_type",
                "there is no training data",
                why=f"MaxText's own default, {kind}, is not text data",
                fix="set data.text, data.train_data_path, or dataset_type: synthetic, grain, hf or tfds",
            )
        modules = list(_MODULES.get(kind, ()))
        if kind == "grain" and settings["grain_file_type"] == "parquet":
            modules.append("pyarrow")
        found = [Requirement("module", name, f"pip install {name}") for name in modules]
        return [*found, *self._tokenizer(settings), *self._named(settings)]

    def _tokenizer(self, settings: Settings) -> list[Requirement]:
        """The file of a tokenizer that does not come with MaxText."""
        path = settings["tokenizer_path"] or ""
        a_file = settings["tokenizer_type"] != "huggingface" and not _elsewhere(path)
        if settings["dataset_type"] == "synthetic" or not a_file or os.path.basename(path) in ("", *_TOKENIZERS):
            return []
        fix = f"correct 'tokenizer_path', or take one of MaxText's: {', '.join(_TOKENIZERS)}"
        return [Requirement("file", os.path.join(self.call.facts.cwd, path), fix)]

    def _named(self, settings: Settings) -> list[Requirement]:
        """The files to read. A pattern must match one."""
        found = []
        for name in _FILES.get(settings["dataset_type"], ()):
            for path in _paths(settings[name]) if not settings["grain_file_type"].startswith("mmap") else ():
                whole = os.path.join(self.call.facts.cwd, os.path.expanduser(path))
                found.append(Requirement("file", whole, f"correct '{name}'"))
        return found


def refuse_evaluation(settings: Settings, other: str = "") -> None:
    """Refuse to evaluate without data for it. `other`: what gives some, beside shares.

    Raises:
        ConfigError: there is an evaluation.
    """
    if settings["eval_interval"] > 0:
        shares = "data.split=98,2: shares to train and to validate on"
        fix = f"{other or 'set '}{shares}\nor evaluate nothing: eval_interval=-1"
        raise settings.error("eval_interval", "there is no data for the evaluation", fix=fix)


def is_unsplit(data: Mapping[str, Any]) -> bool:
    """Check whether the section `data` trains on all of `input`, whatever else is wrong with it."""
    return bool(data.get("input")) and not any(data.get(name) for name in ("split", "text", "train_data_path"))


def _is_asked(settings: Settings, name: str) -> bool:
    """Whether somebody typed a kind of data: in a file, made-up data is a template's."""
    return name == "dataset_type" and is_typed(settings.where(name))


def _paths(value: Any) -> list[str]:
    """The local ones of `a;b`, or of `a,0.7;b,0.3`."""
    parts = (part.rpartition(",") for part in value.split(";")) if isinstance(value, str) else ()
    paths = [(before if before and _is_number(after) else before + comma + after) for before, comma, after in parts]
    return [path for path in paths if path and not _elsewhere(path)]


def _elsewhere(path: str) -> bool:
    return "://" in path


def _is_number(text: str) -> bool:
    return text.strip().replace(".", "", 1).isdigit()
