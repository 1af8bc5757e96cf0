"""The `data` section of backends that train on `.bin`/`.idx`: text that a step prepares before the worker."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from primus_core.config.document import Document
from primus_core.environment import resolve as environment
from primus_core.errors import ConfigError
from primus_core.plan.plan import Requirement, Step
from primus_train.backend import BackendCall
from primus_train.kit.settings import Own, own_section
from primus_train.text.files import STDLIB

__all__ = ["SMALLEST_VOCABULARY", "Text", "prepare", "resolve", "rows"]

SMALLEST_VOCABULARY = 258
"""Every byte, one merge, and the end of document."""


@dataclass(frozen=True, slots=True)
class Text:
    """The section as given."""

    source: str
    vocab_size: int
    document_chars: int
    cache: str

    def to_dict(self) -> dict[str, Any]:
        """What a later run compares."""
        return {"text": self.source, "vocab_size": self.vocab_size, "document_chars": self.document_chars}

    def requires(self) -> tuple[Requirement, ...]:
        """What it is read from, and the cache."""
        read = [] if self.source == STDLIB else [Requirement("file", self.source, "set data.text to text that is here")]
        return (*read, Requirement("folder", self.cache, "export PRIMUS_CACHE, or set data.cache"))


def rows(becomes: str, vocab_size: str) -> tuple[Own, ...]:
    """The settings of the section; `becomes`, `vocab_size`: what `text` and `vocab_size` are in the framework."""
    return (
        Own("text", "str", None, "`python-stdlib`, or a folder of text files, to train on", becomes),
        Own("vocab_size", "int", None, "size of the tokenizer that is trained on the text, end of document included",
            vocab_size, least=SMALLEST_VOCABULARY),
        Own("document_chars", "int", 0, "cut documents at line ends into pieces of about this size; 0: whole files",
            "the documents of the data", least=0),
        Own("cache", "str", None, "folder for prepared text; by default `data` in Primus's cache", "-"),
    )  # fmt: skip


def resolve(document: Document, table: Sequence[Own], call: BackendCall, framework: str) -> Text | None:
    """The text of the section, or None where the experiment has none.

    Raises:
        ConfigError: a name or a value is wrong, or one is missing.
    """
    given = own_section(document, table, "data", framework)
    if not any(name in given for name in ("text", "vocab_size", "document_chars", "cache")):
        return None
    for name, fix in (("text", f"{STDLIB}, or to a folder of text files"), ("vocab_size", "4096, for instance")):
        if not given.get(name):
            raise ConfigError(f"`data` has no `{name}`", where=document.where(()), fix=f"set `data.{name}` to {fix}")
    cwd, source = call.facts.cwd, given["text"]
    cache = given.get("cache") or os.path.join(environment.cache(call.facts.environ), "data")
    return Text(
        source=source if source == STDLIB else os.path.join(cwd, source),
        vocab_size=given["vocab_size"],
        document_chars=given.get("document_chars", 0),
        cache=os.path.join(cwd, cache),
    )


def prepare(text: Text, call: BackendCall) -> tuple[Step, str]:
    """The step that prepares it, and the folder where `train` and `validation` will be."""
    folder = os.path.join(call.place.directory, "data")
    argv = [call.facts.python, "-m", "primus_train.text.prepare", "--source", text.source]
    argv += ["--vocab-size", str(text.vocab_size), "--cache", text.cache, "--out", folder]
    argv += ["--document-chars", str(text.document_chars)] if text.document_chars else []
    return Step("prepare text", tuple(argv), call.facts.cwd), folder
