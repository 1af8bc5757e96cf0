"""Text to train on, from files that are here: a tokenizer trained on them, and the documents in one file.

    python -m primus_torchtitan.prepare_text --source python-stdlib --vocab-size 4096 --cache DIR --out RUN/data

The result is kept in the cache under a name made from its content, so the same sources are prepared once.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

from primus_core.files import link_atomically
from primus_torchtitan.own_settings import STDLIB

__all__ = ["cache_key", "documents", "main", "prepare", "sources"]

VERSION = 1
"""Part of every cache key. It changes when the same sources would be prepared differently."""

BOS, EOS = "<|begin_of_text|>", "<|end_of_text|>"
SUFFIXES = {".md", ".py", ".rst", ".txt"}
SKIPPED_FOLDERS = {"__pycache__", "site-packages", "dist-packages", "test", "tests", "idle_test", "_bundled"}
LARGEST_FILE = 1 << 20
HELD_OUT = 50
"""One document in so many is kept from training, for validation."""
_SEED = 1234


def sources(source: str) -> list[Path]:
    """The text files of `source`, sorted by name: small enough, of a known kind, and not in a skipped folder."""
    root = Path(sysconfig.get_paths()["stdlib"] if source == STDLIB else source)
    found = sorted(_walk(root), key=lambda path: path.relative_to(root).as_posix())
    if not found:
        raise SystemExit(f"no text in {root}: looked for {', '.join(sorted(SUFFIXES))} up to {LARGEST_FILE} bytes")
    return found


def _walk(root: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if name not in SKIPPED_FOLDERS and not name.startswith(("config-", "."))]
        paths = (Path(folder, name) for name in files)
        yield from (p for p in paths if p.suffix in SUFFIXES and p.is_file() and 0 < p.stat().st_size <= LARGEST_FILE)


def documents(source: str) -> list[tuple[str, str]]:
    """`(name, text)` of each source that is UTF-8 and no binary."""
    texts = []
    for path in sources(source):
        try:
            text = path.read_bytes().decode("utf-8")
        except UnicodeDecodeError:
            continue  # a test of codecs, or no text after all
        if "\0" not in text and text.strip():
            texts.append((path.name, text))
    return texts


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


def cache_key(texts: list[tuple[str, str]], vocab_size: int, document_chars: int) -> str:
    """A name for what comes out: names, contents, parameters, and how it is prepared."""
    digest = hashlib.sha256(f"{VERSION} {vocab_size} {document_chars} {len(texts)}".encode())
    for part in (part for name, text in texts for part in (name, text)):
        data = part.encode()
        digest.update(len(data).to_bytes(8, "big"))
        digest.update(data)
    return digest.hexdigest()[:32]


def prepare(source: str, vocab_size: int, cache: Path, document_chars: int = 0) -> Path:
    """The prepared folder in `cache`, made if it is not there yet. Several processes may ask at once."""
    texts = documents(source)
    folder = cache / f"text-{cache_key(texts, vocab_size, document_chars)}"
    if folder.is_dir():
        print(f"text: {len(texts)} files, prepared before in {folder}", file=sys.stderr)
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    stage = Path(tempfile.mkdtemp(prefix=".text-", dir=cache))
    try:
        _write(stage, texts, vocab_size, document_chars)
        _publish(stage, folder)
    finally:
        shutil.rmtree(stage, ignore_errors=True)
    print(f"text: {len(texts)} files, prepared in {folder}", file=sys.stderr)
    return folder


def _publish(stage: Path, folder: Path) -> None:
    """Rename into place. Whoever comes second finds the same content there already."""
    stage.chmod(0o755)  # mkdtemp's is for the owner alone
    try:
        stage.rename(folder)
    except OSError:
        if not folder.is_dir():
            raise


def _write(stage: Path, texts: list[tuple[str, str]], vocab_size: int, document_chars: int) -> None:
    """The tokenizer, and the documents in an order that is random and the same everywhere."""
    _write_tokenizer(stage / "tokenizer", [text for _, text in texts], vocab_size)
    found = [(name, piece) for name, text in texts for piece in pieces(text, document_chars)]
    random.Random(_SEED).shuffle(found)  # noqa: S311  # no secret depends on it
    held_out = -(-len(found) // HELD_OUT) if len(found) > 1 else 0
    _write_documents(stage, found[held_out:])
    _write_documents(stage / "validation", found[:held_out])


def _write_documents(folder: Path, found: list[tuple[str, str]]) -> None:
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


def main(argv: list[str] | None = None) -> None:
    """Prepare, and let `--out` be a link to the result."""
    parser = argparse.ArgumentParser(prog="prepare_text", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--source", required=True, help=f"'{STDLIB}', or a folder of text files")
    parser.add_argument("--vocab-size", type=int, required=True, help="size of the tokenizer to train")
    parser.add_argument("--document-chars", type=int, default=0, help="cut documents to about this size; 0: do not")
    parser.add_argument("--cache", type=Path, required=True, help="folder that keeps what was prepared")
    parser.add_argument("--out", type=Path, required=True, help="link to make")
    args = parser.parse_args(argv)
    folder = prepare(args.source, args.vocab_size, args.cache, args.document_chars)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    link_atomically(str(folder), str(args.out))


if __name__ == "__main__":
    main()
