"""The texts and the prepared data that the pages of the documentation name."""

from __future__ import annotations

import json
from pathlib import Path

from tests.data.prepared import write
from tokenizers import AddedToken, Tokenizer, models

__all__ = ["make"]

_END = 3


def make(folder: Path, command: str = "") -> None:
    """Four prefixes, and their tokenizer; not the one that `command` writes."""
    tokenizer = Tokenizer(models.WordLevel({"a": 0, "b": 1, "c": 2}, unk_token="a"))
    tokenizer.add_special_tokens([AddedToken("<|endoftext|>", special=True)])
    tokenizer.save(str(folder / "tokenizer.json"))
    rows = [json.dumps({"text": "abc"[number % 3]}) for number in range(40)]
    for name in ("corpus.jsonl", "shards/00.jsonl"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("\n".join(rows), encoding="utf-8")
    documents = [[[number >> bit & 1 for bit in range(8)] + [_END]] for number in range(40)]
    parts = {"corpus": documents, "tokens": documents, "web": documents[:30], "books": documents[30:]}
    for name, part in parts.items():
        if f"--output-prefix {name} " in command:
            continue
        write(folder / f"{name}_text_document", part)
