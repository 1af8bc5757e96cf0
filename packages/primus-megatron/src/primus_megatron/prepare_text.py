"""Text to train on, from files that are here: a tokenizer trained on them, and the documents as `.bin`/`.idx`.

    python -m primus_megatron.prepare_text --source python-stdlib --vocab-size 4096 --cache DIR --out RUN/data

The result is kept in the cache under a name made from its content, so the same sources are prepared once.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from primus_megatron.indexed import IndexedWriter
from primus_megatron.own_settings import STDLIB

__all__ = ["main", "pieces", "prepare", "texts"]

VERSION = 1
"""Part of every cache key. It changes when the same sources would be prepared differently."""

SUFFIXES = {".md", ".py", ".rst", ".txt"}
SKIPPED_FOLDERS = {"__pycache__", "site-packages", "dist-packages", "test", "tests", "idle_test", "_bundled"}
LARGEST_FILE = 1 << 20
HELD_OUT = 50
"""One document in so many is kept from training, for validation."""
_SEED = 1234
_BATCH = 256


def texts(source: str) -> list[str]:
    """The text files of `source` in the order of their names: UTF-8, small enough, of a known kind."""
    root = Path(sysconfig.get_paths()["stdlib"] if source == STDLIB else source)
    found = []
    for path in sorted(_walk(root), key=lambda path: path.relative_to(root).as_posix()):
        try:
            text = path.read_bytes().decode("utf-8")
        except UnicodeDecodeError:
            continue  # a test of codecs, or no text after all
        if "\0" not in text and text.strip():
            found.append(text)
    if not found:
        raise SystemExit(f"no text in {root}: looked for {', '.join(sorted(SUFFIXES))} up to {LARGEST_FILE} bytes")
    return found


def _walk(root: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name not in SKIPPED_FOLDERS and not name.startswith(("config-", "."))]
        paths = (Path(folder, name) for name in names)
        yield from (p for p in paths if p.suffix in SUFFIXES and p.is_file() and 0 < p.stat().st_size <= LARGEST_FILE)


def pieces(text: str, size: int) -> Iterator[str]:
    """`text` cut at line ends into pieces of about `size` characters; 0: in one piece."""
    piece: list[str] = []
    length = 0
    for line in text.splitlines(keepends=True):
        if size and piece and length + len(line) > size:
            yield "".join(piece)
            piece, length = [], 0
        piece.append(line)
        length += len(line)
    yield "".join(piece)


def prepare(source: str, vocab_size: int, cache: Path, document_chars: int = 0) -> Path:
    """The prepared folder in `cache`, made if it is not there yet. Several processes may ask at once."""
    found = texts(source)
    digest = hashlib.sha256(f"megatron {VERSION} {vocab_size} {document_chars}".encode())
    for text in found:
        digest.update(hashlib.sha256(text.encode()).digest())
    folder = cache / f"megatron-{digest.hexdigest()[:32]}"
    if folder.is_dir():
        print(f"text: {len(found)} files, prepared before in {folder}", file=sys.stderr)
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    stage = Path(tempfile.mkdtemp(prefix=".megatron-", dir=cache))
    try:
        _write(stage, found, vocab_size, document_chars)
        _publish(stage, folder)
    finally:
        shutil.rmtree(stage, ignore_errors=True)
    print(f"text: {len(found)} files, prepared in {folder}", file=sys.stderr)
    return folder


def _publish(stage: Path, folder: Path) -> None:
    """Rename into place. Whoever comes second finds the same content there already."""
    stage.chmod(0o755)  # mkdtemp's is for the owner alone
    try:
        stage.rename(folder)
    except OSError:
        if not folder.is_dir():
            raise


def _write(stage: Path, found: list[str], vocab_size: int, document_chars: int) -> None:
    """The tokenizer, and the documents in an order that is random and the same everywhere."""
    tokenizer = _trained(found, vocab_size - 1)
    tokenizer.save(str(stage / "tokenizer.json"))
    documents = [piece for text in found for piece in pieces(text, document_chars)]
    random.Random(_SEED).shuffle(documents)  # noqa: S311  # no secret depends on it
    held_out = max(1, len(documents) // HELD_OUT)
    parts = {"validation": documents[:held_out], "train": documents[held_out:] or documents}
    for name, part in parts.items():
        with IndexedWriter(str(stage / name), vocab_size) as writer:
            for ids in _tokens(tokenizer, part):
                writer.add([*ids, vocab_size - 1])  # the end of document, as Megatron's NullTokenizer has it


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


def main(argv: list[str] | None = None) -> None:
    """Prepare, and let `--out` be a link to the result."""
    parser = argparse.ArgumentParser(prog="prepare_text", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--source", required=True, help=f"'{STDLIB}', or a folder of text files")
    parser.add_argument("--vocab-size", type=int, required=True, help="number of tokens, end of document included")
    parser.add_argument("--document-chars", type=int, default=0, help="cut documents to about this size; 0: do not")
    parser.add_argument("--cache", type=Path, required=True, help="folder that keeps what was prepared")
    parser.add_argument("--out", type=Path, required=True, help="link to make")
    args = parser.parse_args(argv)
    folder = prepare(args.source, args.vocab_size, args.cache, args.document_chars)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    link = args.out.with_name(f".{args.out.name}-{os.getpid()}")
    link.symlink_to(folder)
    link.replace(args.out)


if __name__ == "__main__":
    main()
