"""What is to be prepared, and what decides the result: two preparations with one fingerprint give the same bytes."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from primus_data.sources.files import File

__all__ = ["OnError", "Settings", "fingerprint", "outcome_of"]

OnError = Literal["stop", "skip"]
_FORMAT = 1
"""Of the folder that an unfinished preparation leaves; another one is not continued."""


@dataclass(frozen=True)
class Settings:
    """The arguments of `data prepare`."""

    inputs: tuple[str, ...]
    prefix: str
    tokenizer_type: str
    tokenizer_model: str
    merges: str = ""
    vocab_size: int = 0
    append_eod: bool = False
    keys: tuple[str, ...] = ("text",)
    splits_sentences: bool = False
    keeps_newlines: bool = False
    language: str = "english"
    on_error: OnError = "stop"
    workers: int = 0
    partitions: int = 0
    overwrites: bool = False
    discards_unfinished: bool = False
    wait_s: float = 3600.0

    @property
    def level(self) -> str:
        """What a sequence is, as Megatron has it in the names of its files."""
        return "sentence" if self.splits_sentences else "document"

    @property
    def outputs(self) -> tuple[str, ...]:
        """The prefix of each key's files."""
        return tuple(f"{self.prefix}_{key}_{self.level}" for key in self.keys)

    @property
    def folder(self) -> str:
        """Where the output is."""
        return os.path.dirname(os.path.abspath(self.prefix))


def outcome_of(settings: Settings, files: Sequence[File], digest: str) -> dict[str, Any]:
    """All that decides the result. `digest`: of the tokenizer.

    What stops at an error has nothing to skip in finished parts, so it can be continued with `--on-error skip`.
    """
    listed = hashlib.sha256()
    for file in files:
        listed.update(json.dumps([os.path.abspath(file.path), file.kind, file.size, file.time]).encode())
    split = {"language": settings.language, "keep newlines": settings.keeps_newlines}
    return {
        "format": _FORMAT,
        "input": f"{len(files)} files, {sum(file.size for file in files)} bytes, {listed.hexdigest()[:16]}",
        "tokenizer": f"{settings.tokenizer_type} {digest}",
        "append eod": settings.append_eod,
        "json keys": list(settings.keys),
        "split sentences": split if settings.splits_sentences else False,
    }


def fingerprint(outcome: dict[str, Any]) -> str:
    """The same in short."""
    return hashlib.sha256(json.dumps(outcome, sort_keys=True).encode()).hexdigest()
