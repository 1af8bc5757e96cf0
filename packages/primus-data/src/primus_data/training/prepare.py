"""Text to train on, from files that are here: a tokenizer trained on them, and the documents as `.bin`/`.idx`.

What the quickstarts of all backends read.

python -m primus_data.training.prepare --source python-stdlib --vocab-size 4096 --cache DIR --out RUN/data
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from primus_data import tokenizers
from primus_data.indexed.layout import type_for
from primus_data.indexed.writer import IndexedWriter
from primus_data.tokenizers import Tokenizer
from primus_data.training.files import Text, main, pieces
from primus_data.training.vocabulary import trained

__all__ = ["write"]

KIND = "indexed-1"
"""The form of what comes out, with a number that changes when the same sources would be prepared differently."""

HELD_OUT = 50
"""One document in so many is kept from training, for validation."""
_SEED = 1234
_BATCH = 4096


def write(stage: Path, texts: list[Text], vocab_size: int, document_chars: int) -> None:
    """The tokenizer, and the documents in an order that is random and the same everywhere."""
    trained([text for _, text in texts], vocab_size - 1).save(str(stage / "tokenizer.json"))
    tokenizer = tokenizers.load("HuggingFaceTokenizer", str(stage / "tokenizer.json"))
    documents = [piece for _, text in texts for piece in pieces(text, document_chars)]
    random.Random(_SEED).shuffle(documents)  # noqa: S311  # no secret depends on it
    held_out = max(1, len(documents) // HELD_OUT)
    parts = {"validation": documents[:held_out], "train": documents[held_out:] or documents}
    for name, part in parts.items():
        with IndexedWriter(str(stage / name), type_for(vocab_size)) as writer:
            for start in range(0, len(part), _BATCH):
                _add(writer, tokenizer, part[start : start + _BATCH], vocab_size - 1)


def _add(writer: IndexedWriter, tokenizer: Tokenizer, documents: Sequence[str], end: int) -> None:
    """Documents, each with the end of document as its last token."""
    tokens, lengths = tokenizer.encode(documents)
    writer.add(np.insert(tokens, np.cumsum(lengths), end), lengths + 1, np.ones_like(lengths))


if __name__ == "__main__":
    main(__doc__ or "", write, KIND)
