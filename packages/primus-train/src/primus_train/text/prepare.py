"""Text to train on, from files that are here: a tokenizer trained on them, and the documents as `.bin`/`.idx`.

What backends share that read these files; `tokenizers` is theirs to require.

python -m primus_train.text.prepare --source python-stdlib --vocab-size 4096 --cache DIR --out RUN/data
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from primus_train.text.files import Text, main, pieces
from primus_train.text.indexed import IndexedWriter

__all__ = ["write"]

KIND = "indexed-1"
"""The form of what comes out, with a number that changes when the same sources would be prepared differently."""

HELD_OUT = 50
"""One document in so many is kept from training, for validation."""
_SEED = 1234
_BATCH = 256


def write(stage: Path, texts: list[Text], vocab_size: int, document_chars: int) -> None:
    """The tokenizer, and the documents in an order that is random and the same everywhere."""
    tokenizer = _trained([text for _, text in texts], vocab_size - 1)
    tokenizer.save(str(stage / "tokenizer.json"))
    documents = [piece for _, text in texts for piece in pieces(text, document_chars)]
    random.Random(_SEED).shuffle(documents)  # noqa: S311  # no secret depends on it
    held_out = max(1, len(documents) // HELD_OUT)
    parts = {"validation": documents[:held_out], "train": documents[held_out:] or documents}
    for name, part in parts.items():
        with IndexedWriter(str(stage / name), vocab_size) as writer:
            for ids in _tokens(tokenizer, part):
                writer.add([*ids, vocab_size - 1])  # the end of document


def _tokens(tokenizer: Any, documents: Sequence[str]) -> Iterator[list[int]]:
    for start in range(0, len(documents), _BATCH):
        for encoded in tokenizer.encode_batch_fast(documents[start : start + _BATCH]):
            yield encoded.ids


def _trained(found: list[str], size: int) -> Any:
    """A byte-level BPE of exactly `size` tokens."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(found, trainer)
    if tokenizer.get_vocab_size() != size:
        raise SystemExit(
            f"the text gives {tokenizer.get_vocab_size()} tokens, not {size}: use more text or a smaller vocab_size"
        )
    return tokenizer


if __name__ == "__main__":
    main(__doc__ or "", write, KIND)
