"""Text as runs of earlier versions trained on it: a tokenizer, and the documents in one file. Replays prepare it again.

python -m primus_torchtitan.prepare_text --source python-stdlib --vocab-size 4096 --cache DIR --out RUN/data
"""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

from primus_data.training.files import Text, main, pieces
from primus_data.training.vocabulary import trained

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
    tokenizer = trained(texts, vocab_size, (BOS, EOS))
    folder.mkdir()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": BOS, "eos_token": EOS}), encoding="utf-8")


if __name__ == "__main__":
    main(__doc__ or "", write, KIND)
