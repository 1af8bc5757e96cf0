"""What to train on: text that a step prepares, `.bin`/`.idx` files, or one of MaxText's own pipelines."""

from __future__ import annotations

import glob
import os
from typing import Any

from primus_core.config.document import Document
from primus_core.errors import ConfigError, MachineError
from primus_core.plan.plan import Requirement, Step
from primus_maxtext.own_settings import DATA
from primus_maxtext.settings import Settings
from primus_train.backend import BackendCall
from primus_train.kit.settings import own_section
from primus_train.text import data
from primus_train.text.data import Text
from primus_train.text.indexed import fault, largest

__all__ = ["TAKEN", "Data"]

TAKEN = (
    "dataset_type", "grain_file_type", "grain_train_files", "grain_eval_files", "grain_train_mixture_config_path",
    "mmap_eod_id", "hf_path", "hf_train_files", "dataset_path",
)  # fmt: skip
"""What the `data` section says in MaxText's words."""
_MADE_UP = "synthetic"
"""Templates say so, to run as they stand; data of one's own take its place."""
_MODULES = {"tfds": ("tensorflow", "tensorflow_datasets"), "c4_mlperf": ("tensorflow", "tensorflow_datasets"),
            "hf": ("datasets",)}  # fmt: skip
_TOKENIZERS = (
    "tokenizer.default", "tokenizer.gemma", "tokenizer.gemma3", "tokenizer.llama2", "tokenizer.mistral-v1",
    "tokenizer.mistral-v3", "tokenizer_gemma4.model", "tokenizer_llama3.tiktoken",
)  # fmt: skip
"""In MaxText's wheel; it finds them by the last part of any path."""
_SEPARATORS = ";|:,"
"""MaxText separates paths with these."""
_ENOUGH = 1 << 20
"""So many tokens are looked at for one that the model does not know."""


class Data:
    """What the experiment trains on."""

    def __init__(self, document: Document, call: BackendCall) -> None:
        self.call, self.document = call, document
        self.text: Text | None = data.resolve(document, DATA, call, "MaxText")
        given = own_section(document, DATA, "data", "MaxText")
        self.train: list[Any] = given.get("train_data_path") or []
        self.valid: list[Any] = given.get("valid_data_path") or []
        self.eod: int | None = given.get("eod_id")
        if self.text and (self.train or self.valid):
            raise self._error("train_data_path", "'data.text' and 'data.train_data_path' both say what to train on")
        if not self.train and (self.valid or self.eod is not None):
            name = "valid_data_path" if self.valid else "eod_id"
            raise self._error(name, f"'data.{name}' is set, and there is no 'data.train_data_path'")

    def _error(self, name: str, what: str) -> ConfigError:
        return ConfigError(what, where=self.document.where((name,)), fix="keep what you mean")

    def model(self, model: Document) -> Document:
        """The `model` section without what prepared text replaces."""
        gone = ("vocab_size", "tokenizer_path", "tokenizer_type") if self.text else ()
        return Document({name: value for name, value in model.data.items() if name not in gone}, model.marks)

    def to_dict(self) -> dict[str, Any] | None:
        """What a later run compares."""
        if self.text:
            return self.text.to_dict()
        return {"train": self.train, "eod_id": self.eod} if self.train else None

    def apply(self, settings: Settings) -> tuple[tuple[Step, ...], list[Requirement]]:
        """Tell MaxText what to read: the steps that prepare it, and what must be there.

        Raises:
            ConfigError: there is nothing to train on, or it is named twice.
            MachineError: files that are there cannot be trained on.
        """
        if not (self.text or self.train):
            return (), self._own_pipeline(settings)
        for name in (*TAKEN, *(["vocab_size"] if self.text else [])):
            if name in settings and settings[name] != _MADE_UP:
                what = f"'{name}' and the section `data` both say what to train on"
                raise settings.error(name, what, fix="keep one of them")
        return self._prepared(settings) if self.text else self._indexed(settings)

    def _prepared(self, settings: Settings) -> tuple[tuple[Step, ...], list[Requirement]]:
        assert self.text
        step, folder = data.prepare(self.text, self.call)
        settings.set("vocab_size", self.text.vocab_size)
        prefixes = [os.path.join(folder, part) for part in ("train", "validation")]
        self._read(settings, *([(1.0, prefix)] for prefix in prefixes), eod=self.text.vocab_size - 1)
        return (step,), list(self.text.requires())

    def _indexed(self, settings: Settings) -> tuple[tuple[Step, ...], list[Requirement]]:
        if self.eod is None:
            what = "'data.eod_id' is not set"
            fix = "set it to the token with which documents end in these files"
            raise ConfigError(what, where=self.document.where(("train_data_path",)), fix=fix)
        parts = [_blend(words, name, self.document, self.call.facts.cwd)
                 for name, words in (("train_data_path", self.train), ("valid_data_path", self.valid))]  # fmt: skip
        found: list[Requirement] = []
        for name, blend in zip(("train_data_path", "valid_data_path"), parts, strict=True):
            for _, prefix in blend:
                found += self._files(prefix, name, settings)
        self._read(settings, *parts, eod=self.eod)
        return (), found

    def _files(self, prefix: str, name: str, settings: Settings) -> list[Requirement]:
        where, fix = self.document.where((name,)), f"correct 'data.{name}' (a path without .bin and .idx)"
        paths = [prefix + suffix for suffix in (".bin", ".idx")]
        if self.call.facts.host.is_known and all(map(os.path.exists, paths)):
            try:
                why = fault(prefix) or _unknown_token(prefix, settings["vocab_size"])
            except OSError as error:
                why = str(error)
            if why:
                raise MachineError(f"{where}: the data '{prefix}' cannot be trained on", why=why, fix=fix)
        return [Requirement("file", path, f"prepare the data, or {fix}") for path in paths]

    def _read(self, settings: Settings, *parts: list[tuple[float, str]], eod: int) -> None:
        index = os.path.join(self.call.place.directory, "data-index")
        settings.set("dataset_type", "grain")
        settings.set("grain_file_type", "mmap_npy")
        settings.set("mmap_eod_id", eod)
        for name, blend in zip(("grain_train_files", "grain_eval_files"), parts, strict=True):
            specs = [(weight, f"{index}|{prefix}") for weight, prefix in blend]
            whole = ";".join(f"{spec},{weight:g}" for weight, spec in specs) if len(specs) > 1 else None
            settings.set(name, whole or next((spec for _, spec in specs), ""))
        if settings["eval_interval"] > 0 and not parts[1]:
            raise settings.error("eval_interval", "there is nothing to evaluate on", fix="set data.valid_data_path")

    def _own_pipeline(self, settings: Settings) -> list[Requirement]:
        """A data set in MaxText's own words."""
        kind = settings["dataset_type"]
        if "dataset_type" not in settings:
            raise settings.error(
                "dataset_type",
                "there is nothing to train on",
                why=f"MaxText's own default, {kind}, is no text",
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
        """The files to read. A pattern must match one.

        Raises:
            MachineError: it matches none.
        """
        found = []
        for name in ("grain_train_files", "grain_eval_files", "grain_train_mixture_config_path", "hf_train_files"):
            for path in _paths(settings[name]) if not settings["grain_file_type"].startswith("mmap") else ():
                whole = os.path.join(self.call.facts.cwd, os.path.expanduser(path))
                if not set(path) & set("*?["):
                    found.append(Requirement("file", whole, f"correct '{name}'"))
                elif self.call.facts.host.is_here and not self.call.elsewhere and not glob.glob(whole):
                    what = f"{settings.where(name)}: no file matches '{whole}'"
                    raise MachineError(what, why=f"it is what '{name}' reads", fix=f"correct '{name}'")
        return found


def _paths(value: Any) -> list[str]:
    """The local ones of `a;b`, or of `a,0.7;b,0.3`."""
    parts = (part.rpartition(",") for part in value.split(";")) if isinstance(value, str) else ()
    paths = [(before if before and _is_number(after) else before + comma + after) for before, comma, after in parts]
    return [path for path in paths if path and not _elsewhere(path)]


def _elsewhere(path: str) -> bool:
    return "://" in path


def _is_number(text: str) -> bool:
    return text.strip().replace(".", "", 1).isdigit()


def _blend(words: list[Any], name: str, document: Document, cwd: str) -> list[tuple[float, str]]:
    """`[3, web, 1, books]` or `[web, books]` as weights and absolute prefixes."""
    weighted = len(words) > 1 and len(words) % 2 == 0 and all(isinstance(word, int | float) for word in words[::2])
    pairs = list(zip(words[::2], words[1::2], strict=True)) if weighted else [(1.0, word) for word in words]
    found = []
    for weight, word in pairs:
        where = document.where((name,))
        if not isinstance(word, str):
            fix = "name paths, each with a weight before it or none with any"
            raise ConfigError(f"'data.{name}' has {word!r} where a path should be", where=where, fix=fix)
        if weight <= 0:
            what = f"'data.{name}' gives '{word}' the weight {weight}"
            raise ConfigError(
                what, where=where, why="weights are shares of the data", fix="give it more, or leave it out"
            )
        path = os.path.normpath(os.path.join(cwd, word))
        if path.endswith((".bin", ".idx")):
            what = f"'data.{name}' names '{word}'"
            raise ConfigError(what, where=where, why=".bin and .idx are added", fix=f"write {word[:-4]}")
        if set(path) & set(_SEPARATORS):
            why = f"MaxText separates paths with {' '.join(_SEPARATORS)}"
            raise ConfigError(f"'data.{name}' names '{path}'", where=where, why=why, fix="rename or link it")
        found.append((float(weight), path))
    return found


def _unknown_token(prefix: str, vocab_size: int) -> str:
    """MaxText trains on with tokens that the model does not have, to losses that mean nothing."""
    token = largest(prefix, _ENOUGH)
    return (
        f"it has the token {token}, and the model has {vocab_size} (0 to {vocab_size - 1})"
        if token >= vocab_size
        else ""
    )
