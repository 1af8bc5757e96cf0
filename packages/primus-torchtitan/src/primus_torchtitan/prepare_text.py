"""Text to train on, from files that are here: a tokenizer trained on them, and the documents in one file.

python -m primus_torchtitan.prepare_text --source python-stdlib --vocab-size 4096 --cache DIR --out RUN/data
"""

from __future__ import annotations

import json
import os
import random
import sys
from collections.abc import Iterator
from pathlib import Path

from primus_train.text.files import Text, main, pieces

__all__ = ["write"]

KIND = "text-1"
"""The form of what comes out, with a number that changes when the same sources would be prepared differently."""

BOS, EOS = "<|begin_of_text|>", "<|end_of_text|>"
HELD_OUT = 50
"""One document in so many is kept from training, for validation."""
_SEED = 1234


def write(stage: Path, texts: list[Text], vocab_size: int, document_chars: int) -> None:
    """The tokenizer, and the documents in an order that is random and the same everywhere."""
    _write_tokenizer(stage / "tokenizer", [text for _, text in texts], vocab_size)
    found = [(name, piece) for name, text in texts for piece in pieces(text, document_chars)]
    random.Random(_SEED).shuffle(found)  # noqa: S311  # no secret depends on it
    held_out = -(-len(found) // HELD_OUT) if len(found) > 1 else 0
    _write_documents(stage, found[held_out:])
    _write_documents(stage / "validation", found[:held_out])


def _write_documents(folder: Path, found: list[Text]) -> None:
    folder.mkdir(exist_ok=True)
    with (folder / "documents.jsonl").open("w", encoding="utf-8") as lines:
        lines.writelines(json.dumps({"name": name, "text": text}) + "\n" for name, text in found)
        lines.flush()
        os.fsync(lines.fileno())


def _write_tokenizer(folder: Path, texts: list[str], vocab_size: int) -> None:
    """A byte-level BPE in the files that TorchTitan's `hf_assets_path` looks for."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[BOS, EOS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_with_progress(texts), trainer)
    if tokenizer.get_vocab_size() != vocab_size:
        raise SystemExit(
            f"the text gives {tokenizer.get_vocab_size()} tokens, not {vocab_size}:"
            " use more text or a smaller vocab_size"
        )
    folder.mkdir()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": BOS, "eos_token": EOS}), encoding="utf-8")


def _with_progress(texts: list[str]) -> Iterator[str]:
    from tqdm import tqdm

    with tqdm(total=sum(map(len, texts)), unit="B", unit_scale=True, desc="tokenizer", file=sys.stderr) as bar:
        for text in texts:
            yield text
            bar.update(len(text))


if __name__ == "__main__":
    main(__doc__ or "", write, KIND)
