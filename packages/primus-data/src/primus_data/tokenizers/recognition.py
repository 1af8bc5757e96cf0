"""Says of a tokenizer's file which type it looks like, for the hint in an error."""

from __future__ import annotations

import re

from primus_data.indexed.layout import regular

__all__ = ["kind_of"]

_BEGINNING = 4096
_BY_BEGINNING = (
    (re.compile(rb"\s*\{\s*\"(version|truncation|padding|added_tokens|model)\""), "HuggingFaceTokenizer"),
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
