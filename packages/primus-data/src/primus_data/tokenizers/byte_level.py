"""Ranks of tiktoken as a `tokenizer.json`, for gigatoken.

tiktoken looks a whole word up before it merges its bytes, so a vocabulary may have tokens that no merges lead to: Llama
3's has 678. gigatoken refuses such ranks, but not the same as JSON: with `ignore_merges`, it looks words up, too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["as_json", "byte_of"]

_SHOWN = (*range(33, 127), *range(161, 173), *range(174, 256))
"""The bytes that stand for themselves; GPT-2 gives the others a letter each, from U+0100 on."""
_HIDDEN = tuple(byte for byte in range(256) if byte not in _SHOWN)
_LETTERS = {byte: chr(byte) for byte in _SHOWN} | {byte: chr(256 + at) for at, byte in enumerate(_HIDDEN)}
_BYTES: dict[str, int] = {letter: byte for byte, letter in _LETTERS.items()}


def byte_of(letter: str) -> int:
    """The byte that a letter stands for.

    Raises:
        ValueError: it stands for none.
    """
    if letter not in _BYTES:
        raise ValueError("its vocabulary is not byte-level")
    return _BYTES[letter]


def as_json(ranks: Mapping[bytes, int], pattern: str, specials: Mapping[str, int]) -> str:
    """The tokenizer with these ranks, which splits text by `pattern`."""
    names = {token: token.decode("latin-1").translate(_LETTERS) for token in ranks}
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    to_bytes = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    model = {
        "type": "BPE",
        "ignore_merges": True,
        "vocab": {names[token]: rank for token, rank in ranks.items()},
        "merges": [[names[left], names[right]] for left, right in _merges(ranks)],
    }
    found = {
        "version": "1.0",
        "added_tokens": [_added(name, number) for name, number in specials.items()],
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, to_bytes]},
        "model": model,
    }
    return json.dumps(found)


def _merges(ranks: Mapping[bytes, int]) -> Iterator[tuple[bytes, bytes]]:
    """Every pair of tokens that tiktoken would merge, the lowest rank first."""
    for token in sorted(ranks, key=ranks.__getitem__):
        pairs = ((token[:at], token[at:]) for at in range(1, len(token)))
        known = [pair for pair in pairs if pair[0] in ranks and pair[1] in ranks]
        yield from sorted(known, key=lambda pair: (ranks[pair[0]], ranks[pair[1]]))


def _added(name: str, number: int) -> dict[str, Any]:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": number, "content": name, "special": True, **flags}
