"""A corpus of the interpreter's own sources, a tokenizer trained on it, and `prepare` in this process."""

from __future__ import annotations

import json
import random
import sysconfig
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from primus_data import command

Prepare = Callable[..., int]
EOD = "<|endoftext|>"


@pytest.fixture(scope="session")
def texts() -> list[str]:
    """Two thousand documents, most of some hundred characters, three of them empty."""
    source = "".join(path.read_text(encoding="utf-8") for path in sorted(_stdlib().glob("[a-d]*.py")))
    draw, found, at = random.Random(1), list[str](), 0
    while len(found) < 2000:
        size = draw.choice((40, 200, 500, 900))
        found.append(source[at : at + size] + draw.choice(("", "é", "日本", "🙂\n")))
        at += size
    for number in (0, 700, 1999):
        found[number] = ""
    return found


def _stdlib() -> Path:
    return Path(sysconfig.get_paths()["stdlib"])


@pytest.fixture(scope="session")
def tokenizer_file(texts: list[str], tmp_path_factory: pytest.TempPathFactory) -> str:
    """A `tokenizer.json` of 1000 ids: byte-level BPE, as GPT-2's."""
    found = Tokenizer(models.BPE())
    found.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    found.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=1000, special_tokens=[EOD], initial_alphabet=alphabet, show_progress=False)
    found.train_from_iterator(texts[:300], trainer)
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    found.save(str(path))
    return str(path)


def as_lines(documents: Iterable[Any]) -> bytes:
    """JSON lines; a text is a document with the key `text`."""
    objects = ({"text": one} if isinstance(one, str) else one for one in documents)
    return b"".join(json.dumps(one, ensure_ascii=False).encode() + b"\n" for one in objects)


@pytest.fixture
def prepare(tokenizer_file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Prepare:
    """`prepare(*words)`: `primus data prepare` with the tokenizer, in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> int:
        prefix = () if "--output-prefix" in words else ("--output-prefix", "out")
        model = () if "--tokenizer-model" in words else ("--tokenizer-model", tokenizer_file)
        return command.run(["prepare", *prefix, *model, *words], "")

    return run
