"""The index of evaluation sets: hashes of n-grams, in the files that datatrove's decontamination reads.

datatrove's own indexer needs lighteval, which downloads the sets. The files here are local.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson

from primus_core.errors import PrimusError
from primus_data.quality import texts
from primus_data.sources.files import find

__all__ = ["index", "texts_of"]


def index(values: Mapping[str, Any], folder: str) -> dict[str, Any]:
    """Write the index of the files that the step names; how many questions each has, and how many are too short.

    Raises:
        PrimusError: a file is no JSONL, or holds no text.
    """
    import numpy as np
    from datatrove.utils.hashing import HashConfig, create_hash_func
    from datatrove.utils.text import ngrams, simplify_text
    from datatrove.utils.word_tokenizers import load_word_tokenizer

    tokenizer, hashed, size = load_word_tokenizer(values["language"]), create_hash_func(HashConfig()), values["ngram"]
    os.makedirs(folder, exist_ok=True)
    report = {}
    for number, path in enumerate(values["against"]):
        hashes: set[int] = set()
        records = short = 0
        for text in texts_of(path, values["keys"]):
            found = [hashed(" ".join(one)) for one in ngrams(tokenizer.word_tokenize(simplify_text(text)), size)]
            hashes.update(found)
            records, short = records + 1, short + (not found)
        if not records:
            raise PrimusError(f"{path}: no text of an evaluation set found", fix="name its keys (`keys: [question]`)")
        array = np.array(sorted(hashes), dtype="<u8")
        array.tofile(f"{folder}/{number:03d}-{os.path.basename(path)}.index.hashes")
        report[path] = {"records": records, "too_short": short}
    return report


def texts_of(path: str, keys: Sequence[str]) -> Iterator[str]:
    """The text of each record: its strings, in the order of the record or of `keys`, one after the other."""
    (file,) = find([path])
    for line, data in texts.lines(file):
        try:
            record = orjson.loads(data)
        except ValueError as error:
            raise PrimusError(f"{path}:{line}: the line is not valid JSON", why=str(error)) from None
        if not isinstance(record, dict):
            raise PrimusError(
                f"{path}:{line}: the record is not an object", fix='write {"question": ..., "answer": ...}'
            )
        values = [record.get(key) for key in keys] if keys else list(record.values())
        if text := "\n".join(_strings(values)):
            yield text


def _strings(values: Sequence[Any]) -> Iterator[str]:
    for value in values:
        if isinstance(value, str):
            yield value
        elif isinstance(value, list):
            yield from _strings(value)
        elif isinstance(value, dict):
            yield from _strings(list(value.values()))
