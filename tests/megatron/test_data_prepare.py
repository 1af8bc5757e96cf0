"""`data prepare` writes what Megatron's own tokenizers and builder write, byte for byte, for each kind of tokenizer."""

from __future__ import annotations

import hashlib
import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("primus_megatron", reason="primus-megatron needs Python 3.12")
pytest.importorskip("gigatoken", reason="gigatoken is not installed")

from tests.data import vocabularies as made
from tests.megatron.conftest import Python

from primus_data import command
from primus_data.tokenizers import load, proof
from primus_megatron.installation import importable_version

pytestmark = [
    pytest.mark.torch,
    pytest.mark.full,
    pytest.mark.skipif(not importable_version(), reason="megatron-core is not installed"),
]
WRITTEN = ("<|end_of_text|>", "<|begin_of_text|>", "</s>", "<SPECIAL_7>", "<mask>", "<pad>")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the files are."""
    return tmp_path_factory.mktemp("tokens")


@pytest.fixture(scope="module")
def kinds(folder: Path) -> list[dict[str, Any]]:
    """Megatron's settings for each kind."""
    from tokenizers import processors

    gpt2, llama3 = made.byte_level(), made.byte_level(made.LLAMA3_SPLIT, ("<|begin_of_text|>", "<|end_of_text|>"))
    begin = ("<|begin_of_text|>", llama3.token_to_id("<|begin_of_text|>"))
    llama3.post_processor = processors.TemplateProcessing(single=f"{begin[0]} $A", special_tokens=[begin])
    named = {
        "gpt2": (gpt2, {"tokenizer_class": "GPT2Tokenizer", "eos_token": made.END}),
        "llama3": (llama3, {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|end_of_text|>"}),
        "padded": (gpt2, {"tokenizer_class": "TokenizersBackend", "sep_token": made.END, "pad_token": "<pad>"}),
    }
    for name, (tokenizer, config) in named.items():
        (folder / name).mkdir()
        tokenizer.save(str(folder / name / "tokenizer.json"))
        (folder / name / "tokenizer_config.json").write_text(json.dumps(config))
    tokens = made.ranks(gpt2)
    ranks = made.rank_list(folder / "ranks.json", tokens)
    llama2 = made.sentencepiece_model(folder / "llama2.model", **made.LLAMA2)
    unigram = made.sentencepiece_model(folder / "unigram.model", model_type="unigram")
    return [
        *({"tokenizer_type": "HuggingFaceTokenizer", "tokenizer_model": str(folder / name)} for name in named),
        {"tokenizer_type": "TikTokenizer", "tokenizer_model": str(ranks), "vocab_size": len(tokens) + 1000},
        {"tokenizer_type": "TikTokenizer", "tokenizer_model": str(ranks), "vocab_size": 1500},
        {"tokenizer_type": "Llama2Tokenizer", "tokenizer_model": str(llama2)},
        {"tokenizer_type": "SentencePieceTokenizer", "tokenizer_model": str(unigram)},
    ]


@pytest.mark.skipif(not find_spec("transformers"), reason="transformers is not installed")
def test_each_kind_of_tokenizer_gives_megatrons_files(
    python: Python, folder: Path, kinds: list[dict[str, Any]], clean_environ: dict[str, str]
) -> None:
    texts = [*proof.texts(WRITTEN, 300, seed=3)[-400:], *made.corpus(10), *made.corpus(2)]
    source = folder / "in.jsonl"
    source.write_text(
        "".join(json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in texts), encoding="utf-8"
    )
    settings = [json.dumps(kind) for kind in kinds]
    theirs = python("tests.megatron.preprocess_data", str(folder / "theirs"), str(source), "0", *settings)
    assert theirs.code == 0, theirs.err
    fast = []
    for number, kind in enumerate(kinds):
        words = [word for name, value in kind.items() for word in (f"--{name.replace('_', '-')}", str(value))]
        words += ["--input", str(source), "--output-prefix", str(folder / f"ours{number}"), "--append-eod"]
        assert command.run(["prepare", *words], "") == 0
        fast.append(load(kind["tokenizer_type"], kind["tokenizer_model"], vocab_size=kind.get("vocab_size", 0)).name)
        for suffix in ("bin", "idx"):
            files = [folder / f"{side}{number}_text_document.{suffix}" for side in ("ours", "theirs")]
            ours, right = (hashlib.sha256(file.read_bytes()).hexdigest() for file in files)
            assert ours == right, (kind, suffix)
    assert fast == ["gigatoken"] * 6 + ["sentencepiece"]
