"""What the `data` section may name: local text of the quickstarts, raw text with a tokenizer, or prepared data.

Each says which step of the plan prepares it, and what the worker reads then (`samples.Samples.of`).
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from primus_core.errors import ConfigError
from primus_core.plan.plan import Requirement, Step
from primus_data.training.files import STDLIB
from primus_machine.errors import suggestion
from primus_train.backend import BackendCall

__all__ = [
    "CORPUS", "FOLDER", "Corpus", "Prefixes", "Raw", "Text", "Told", "is_number", "refuse_numbers", "split_at_blanks",
]  # fmt: skip

FOLDER = "data"
"""Of the run directory: a link to what was prepared."""
CORPUS = "corpus"
"""The output prefix in it of raw text."""
Told = Mapping[str, Any]
"""What `samples.Samples.of` reads, without the length and the number of samples."""
_CACHE = "export PRIMUS_CACHE, or set data.cache"


@dataclass(frozen=True, slots=True)
class Text:
    """Local text, on which a tokenizer is trained, too."""

    source: str
    vocab_size: int
    document_chars: int
    cache: str

    @property
    def eod(self) -> int | None:
        """The token that ends a document."""
        return self.vocab_size - 1

    def to_dict(self) -> dict[str, Any]:
        """What a later run compares."""
        return {"text": self.source, "vocab_size": self.vocab_size, "document_chars": self.document_chars}

    def requires(self) -> tuple[Requirement, ...]:
        """What it is read from, and the cache."""
        fix = suggestion(os.path.basename(self.source), (STDLIB,), alike=0.8) or "set data.text to local text"
        read = [] if self.source == STDLIB else [Requirement("file", self.source, fix)]
        fix = "pip install primus-data, where the training runs"
        module = Requirement("module", "tokenizers", fix)
        return (module, *read, Requirement("folder", self.cache, _CACHE))

    def steps(self, call: BackendCall, vocab_size: int) -> tuple[Step, ...]:
        """What prepares it before the worker."""
        del vocab_size
        argv = [call.facts.python, "-m", "primus_data.training.prepare", "--source", self.source]
        argv += ["--vocab-size", str(self.vocab_size), "--cache", self.cache, "--out", folder(call)]
        argv += ["--document-chars", str(self.document_chars)] if self.document_chars else []
        return (Step("prepare text", tuple(argv), call.facts.cwd),)

    def told(self, call: BackendCall) -> dict[str, Told]:
        """What is read to train and to validate."""
        return {part: {"blend": [[None, os.path.join(folder(call), part)]]} for part in ("train", "validation")}


@dataclass(frozen=True, slots=True)
class Raw:
    """Files of raw text, and the tokenizer for them."""

    inputs: tuple[str, ...]
    tokenizer: tuple[str, str]
    """Its type and its model."""
    json_key: str
    append_eod: bool
    eod: int | None
    split: tuple[float, ...]
    cache: str

    def to_dict(self) -> dict[str, Any]:
        """What a later run compares."""
        return {
            "input": list(self.inputs),
            "tokenizer": list(self.tokenizer),
            "json_key": self.json_key,
            "append_eod": self.append_eod,
            "split": list(self.split),
        }

    def requires(self) -> tuple[Requirement, ...]:
        """The files, of a pattern also the folder in which it looks, which a container needs, and the cache."""
        folders = (path for path in map(_without_pattern, self.inputs) if os.path.exists(path))
        files = dict.fromkeys((*self.inputs, *folders))
        found = [Requirement("file", path, "set data.input to files of text") for path in files]
        if self.tokenizer[1]:
            found.append(Requirement("file", self.tokenizer[1], "set data.tokenizer_model to the tokenizer's file"))
        return (*found, Requirement("folder", self.cache, _CACHE))

    def steps(self, call: BackendCall, vocab_size: int) -> tuple[Step, ...]:
        """What prepares it before the worker. `vocab_size`: of the model; 0: nobody knows."""
        kind, model = self.tokenizer
        argv = [call.facts.python, "-m", "primus_data.training.prepare_input"]
        argv += ["--cache", self.cache, "--out", folder(call)]
        argv += ["--model-vocab-size", str(vocab_size)] if vocab_size else []
        argv += ["--json-key", self.json_key, "--tokenizer-type", kind]
        argv += ["--tokenizer-model", model] if model else []
        argv += ["--append-eod"] if self.append_eod else []
        node = call.distributed
        argv += ["--node-rank", str(node.node_rank), "--nodes", str(node.nnodes)] if node.nnodes > 1 else []
        return (Step("prepare data", (*argv, "--input", *self.inputs), call.facts.cwd),)

    def told(self, call: BackendCall) -> dict[str, Told]:
        """What is read to train and to validate."""
        prefix = os.path.join(folder(call), f"{CORPUS}_{self.json_key}_document")
        return _parts([[None, prefix]], [], self.split)


@dataclass(frozen=True, slots=True)
class Prefixes:
    """Prepared data: `.bin`/`.idx` files, each with a weight, or all without."""

    train: tuple[tuple[float | None, str], ...]
    valid: tuple[tuple[float | None, str], ...] = ()
    split: tuple[float, ...] = ()
    """Shares of the documents of `train`; empty: all are trained on."""
    eod: int | None = None
    were_split: tuple[str, ...] = ()
    """Settings that were one text, which was split at blanks."""

    def to_dict(self) -> dict[str, Any]:
        """What a later run compares."""
        return {"train": [list(pair) for pair in self.train], "split": list(self.split)}

    def requires(self) -> tuple[Requirement, ...]:
        """The files."""
        named = (("train_data_path", self.train), ("valid_data_path", self.valid))
        return tuple(
            Requirement(
                "file",
                path + suffix,
                f"prepare the data, or correct 'data.{name}'{split_at_blanks(name, self.were_split)}",
            )
            for name, blend in named
            for _, path in blend
            for suffix in (".bin", ".idx")
        )

    def steps(self, call: BackendCall, vocab_size: int) -> tuple[Step, ...]:
        """None."""
        del call, vocab_size
        return ()

    def told(self, call: BackendCall) -> dict[str, Told]:
        """What is read to train and to validate."""
        del call
        return _parts([list(pair) for pair in self.train], [list(pair) for pair in self.valid], self.split)


def split_at_blanks(name: str, were_split: Collection[str]) -> str:
    """Return what to add to an error about a path, where it is a part of a text."""
    return "; its text was split at blanks: write a list ([my data/web]) to keep them" if name in were_split else ""


def refuse_numbers(name: str, words: Sequence[Any], cwd: str, where: str) -> None:
    """Refuse a number that stands where a path of a blend should be.

    Raises:
        ConfigError: of the setting `name`, which is at `where`.
    """
    for word in words:
        if is_number(word) and not os.path.exists(os.path.join(cwd, f"{word}.bin")):
            what = f"'{name}' has {word} where a path should be"
            why = "either each path has a weight above 0 before it, or none has"
            raise ConfigError(what, where=where, why=why, fix="write 0.7 web 0.3 books, for instance")


def is_number(word: Any) -> bool:
    """Whether a word may be a weight or a share."""
    try:
        return math.isfinite(float(word))
    except (TypeError, ValueError):
        return False


Corpus = Text | Raw | Prefixes


def _without_pattern(path: str) -> str:
    found = re.search(r"[*?[]", path)
    return os.path.dirname(path[: found.start()]) if found else path


def folder(call: BackendCall) -> str:
    """Where the run finds what was prepared."""
    return os.path.join(call.place.directory, FOLDER)


def _parts(train: list[Any], valid: list[Any], split: tuple[float, ...]) -> dict[str, Told]:
    shares = list(split) or [1.0]
    found: dict[str, Told] = {"train": {"blend": train, "split": shares}}
    if valid:
        found["validation"] = {"blend": valid}
    elif len(shares) > 1 and shares[1]:
        found["validation"] = {"blend": train, "split": shares, "part": 1}
    return found
