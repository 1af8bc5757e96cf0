"""Megatron's tool, in plain Python: what `tools/preprocess_data.py` and its `IndexedDatasetBuilder` write."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

EOD = 0


def written(
    documents: Iterable[str | Sequence[str]],
    tokenizer_file: str,
    *,
    append_eod: bool = False,
    split: Callable[[str], list[str]] | None = None,
) -> tuple[bytes, bytes]:
    """The bytes of .bin and .idx. A document is a text, or a list of sentences."""
    tokenizer = Tokenizer.from_file(tokenizer_file)
    tokens, lengths, bounds = list[int](), list[int](), [0]
    for text in documents:
        sentences = (split(text) if split else [text]) if isinstance(text, str) else text
        ids, sizes = list[int](), list[int]()
        for sentence in sentences:
            if found := tokenizer.encode(sentence, add_special_tokens=False).ids:
                ids.extend(found)
                sizes.append(len(found))
        if ids and append_eod:
            ids.append(EOD)
            sizes[-1] += 1
        tokens += ids
        lengths += sizes
        bounds.append(len(lengths))
    return struct.pack(f"<{len(tokens)}H", *tokens), _index(lengths, bounds)


def _index(lengths: list[int], bounds: list[int]) -> bytes:
    offsets, at = [], 0
    for length in lengths:
        offsets.append(at)
        at += 2 * length
    head = b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, 8, len(lengths), len(bounds))
    count = len(lengths)
    return head + struct.pack(f"<{count}i{count}q{len(bounds)}q", *lengths, *offsets, *bounds)


def files(prefix: str | Path) -> tuple[bytes, bytes]:
    """The bytes of .bin and .idx that are there."""
    return Path(f"{prefix}.bin").read_bytes(), Path(f"{prefix}.idx").read_bytes()


def values(rows: Iterable[dict[str, Any]], key: str) -> list[Any]:
    """What each row has under the key."""
    return [row[key] for row in rows]
