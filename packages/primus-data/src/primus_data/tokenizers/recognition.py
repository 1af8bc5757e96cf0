"""Says of a tokenizer's file which type it looks like, and which tokenizers a folder has, for the hint in an error."""

from __future__ import annotations

import os
import re
from itertools import islice

from primus_data.indexed.layout import regular
from primus_machine.errors import nearest

__all__ = ["kind_of", "nearest_tokenizer", "tokenizers_in"]

_HUGGING_FACE, _OF_FOLDER = "HuggingFaceTokenizer", "tokenizer.json"
_NAMES = re.compile(r"(?i).*token.*|.*\.(model|tiktoken)")
"""What files with a tokenizer are called."""
_MOST = 2000
"""So many entries of a folder are looked at."""

_BEGINNING = 4096
_BY_BEGINNING = (
    (re.compile(rb"\s*\{\s*\"(version|truncation|padding|added_tokens|model)\""), _HUGGING_FACE),
    (re.compile(rb"\s*\[\s*\{\s*\"(rank|token_bytes|token_str)\""), "TikTokenizer"),
    (re.compile(rb"[A-Za-z0-9+/]+=* [0-9]+\r?\n"), "TikTokenizer"),
    # A message of protobuf: field 1 is a piece, whose field 1 is a string.
    (re.compile(rb"\x0a[\x05-\x7f]\x0a", re.S), "SentencePieceTokenizer"),
)


def kind_of(path: str) -> str:
    """A value of `--tokenizer-type`; empty: it looks like none, or cannot be read."""
    try:
        with open(path, "rb", opener=regular) as file:
            beginning = file.read(_BEGINNING)
    except OSError:
        return ""
    return next((kind for pattern, kind in _BY_BEGINNING if pattern.match(beginning)), "")


def tokenizers_in(folder: str, kind: str = _HUGGING_FACE) -> list[str]:
    """Return the names in `folder` of files and folders that look like tokenizers of a `--tokenizer-type`, sorted."""
    family = "SentencePieceTokenizer" if "Piece" in kind or kind.startswith("Llama2") else kind
    try:
        with os.scandir(folder) as entries:
            return sorted(entry.name for entry in islice(entries, _MOST) if _is_one(entry, family))
    except OSError:
        return []


def _is_one(entry: os.DirEntry[str], kind: str) -> bool:
    if entry.is_dir():
        return kind == _HUGGING_FACE and os.path.isfile(os.path.join(entry.path, _OF_FOLDER))
    return bool(_NAMES.fullmatch(entry.name)) and kind_of(entry.path) == kind


def nearest_tokenizer(path: str, cwd: str, kind: str = _HUGGING_FACE) -> tuple[str, bool]:
    """Return a tokenizer beside `path` or in `cwd`, as one types it, and whether `path` nearly is its name."""
    folder, name = os.path.split(path)
    for place in dict.fromkeys((folder, "")):
        if found := tokenizers_in(os.path.join(cwd, place) or ".", kind):
            near = nearest(name, found)
            return os.path.join(place, near or found[0]), bool(near)
    return "", False
