"""Small tokenizers for tests, of each kind, trained on the standard library's sources."""

from __future__ import annotations

import base64
import json
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

LLAMA3_SPLIT = (
    r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"""
    r"""|\s+(?!\S)|\s+"""
)
OWN_SPLIT = r" ?\p{L}+| ?\p{N}{1,2}| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
"""No tokenizer's that gigatoken knows."""
END = "<|endoftext|>"
VOCAB_SIZE = 1000


def corpus(files: int = 60) -> list[str]:
    """Sources of this Python."""
    paths = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))[:files]
    return [path.read_text(encoding="utf-8", errors="ignore") for path in paths]


def byte_level(split: str = "", specials: tuple[str, ...] = (END,), size: int = VOCAB_SIZE) -> Any:
    """Byte-level BPE of the library tokenizers, as GPT-2's (without `split`) and Llama 3's are."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    parts = [pre_tokenizers.Split(Regex(split), "isolated")] if split else []
    bytes_last = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not split)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*parts, bytes_last]) if parts else bytes_last
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=size - len(specials), initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(corpus(), trainer)
    tokenizer.add_special_tokens(list(specials))
    return tokenizer


def ranks(tokenizer: Any) -> list[bytes]:
    """The tokens of a byte-level tokenizer by rank, the bytes first and in their order."""
    letters = {letter: byte for byte, letter in _letters()}
    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    merged = ["".join(pair.split(" ") if isinstance(pair, str) else pair) for pair in merges]
    tokens = dict.fromkeys(bytes(letters[letter] for letter in token) for token in merged)
    return [*(bytes([byte]) for byte in range(256)), *tokens]


def _letters() -> Iterator[tuple[int, str]]:
    """GPT-2's letter for each byte."""
    shown = {*range(33, 127), *range(161, 173), *range(174, 256)}
    hidden = iter(range(256, 512))
    return ((byte, chr(byte if byte in shown else next(hidden))) for byte in range(256))


def rank_file(path: Path, tokens: list[bytes]) -> Path:
    """tiktoken's format."""
    path.write_bytes(b"".join(b"%s %d\n" % (base64.b64encode(token), rank) for rank, token in enumerate(tokens)))
    return path


def rank_list(path: Path, tokens: list[bytes]) -> Path:
    """Megatron's format."""
    rows = [
        {"rank": rank, "token_bytes": base64.b64encode(token).decode(), "token_str": token.decode(errors="replace")}
        for rank, token in enumerate(tokens)
    ]
    path.write_text(json.dumps(rows))
    return path


def gpt2_files(folder: Path, tokenizer: Any) -> Path:
    """`vocab.json` and `merges.txt`."""
    tokenizer.model.save(str(folder))
    vocab = json.loads((folder / "vocab.json").read_text())
    vocab[END] = tokenizer.token_to_id(END)
    (folder / "vocab.json").write_text(json.dumps(vocab))
    return folder / "vocab.json"


LLAMA2: dict[str, Any] = {"model_type": "bpe", "normalization_rule_name": "identity", "remove_extra_whitespaces": False}
"""How Llama 2's model is made."""


def sentencepiece_model(path: Path, **options: Any) -> Path:
    """A model of SentencePiece."""
    import sentencepiece

    lines = (line for text in corpus(20) for line in text.splitlines() if line.strip())
    with path.open("wb") as file:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=lines,
            model_writer=file,
            vocab_size=VOCAB_SIZE,
            minloglevel=2,
            **{"byte_fallback": True, **options},
        )
    return path
