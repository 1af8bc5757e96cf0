"""Which tokenizer a run has, and how many tokens its model knows."""

from __future__ import annotations

import os
from typing import Any

from primus_core.config.document import Document
from primus_core.plan.plan import Requirement
from primus_megatron.settings import Settings

__all__ = ["NULL", "choose_tokenizer", "of_model", "tokenizer_files", "tokens", "use_null_tokenizer"]

NULL = "NullTokenizer"
"""Tokens are numbers already."""
_HUGGING_FACE = "HuggingFaceTokenizer"
_FROM_FILES = ("SentencePieceTokenizer", "GPTSentencePieceTokenizer", "Llama2Tokenizer", "TikTokenizer")
_OF_TOKENIZER = ("tokenizer_type", "tokenizer_model")


def of_model(model: Document, settings: Document, *, text: bool, tokens: bool) -> Document:
    """The `model` section without what the data replace: text of quickstarts has its own tokenizer; where `tokens` are
    numbers already, and with mock data, there are no words.
    """
    gone = (*_OF_TOKENIZER, "vocab_size") if text else _OF_TOKENIZER if tokens or _is_mock(settings.data) else ()
    return Document({name: value for name, value in model.data.items() if name not in gone}, model.marks)


def _is_mock(data: dict[str, Any]) -> bool:
    return bool(data.get("mock_data")) and "tokenizer_type" not in data


def choose_tokenizer(settings: Settings) -> None:
    """Name the tokenizer where nobody did, and let the model have as many tokens as `vocab_size` says.

    Raises:
        ConfigError: there is no tokenizer, or no number of tokens.
    """
    kind = settings["tokenizer_type"]
    if kind is None and settings["mock_data"] and settings["mock_vocab_size"]:
        settings.default("vocab_size", settings["mock_vocab_size"])
    if settings["vocab_size"] is None and (kind == NULL or (kind is None and settings["mock_data"])):
        raise settings.error("vocab_size", "'vocab_size' is not set", why=f"{NULL} has no vocabulary")
    if kind is None and settings["mock_data"]:
        use_null_tokenizer(settings, settings["vocab_size"])
    elif kind is None and settings["tokenizer_model"]:
        settings.set("tokenizer_type", _HUGGING_FACE)
    elif kind is None:
        fix = f"set tokenizer_model to a model of huggingface.co or a folder, or tokenizer_type: {NULL}"
        raise settings.error("tokenizer_type", "there is no tokenizer", why="the data need a tokenizer", fix=fix)
    if settings["vocab_size"] and not settings["tokenizer_type"].startswith("Null"):
        unit = settings["make_vocab_size_divisible_by"] * settings["tensor_model_parallel_size"]
        # Otherwise Megatron would go by the tokenizer, which often has fewer tokens than its model.
        settings.default("padded_vocab_size", -(-settings["vocab_size"] // unit) * unit)


def tokenizer_files(settings: Settings, cwd: str) -> list[Requirement]:
    """The files of the tokenizer, which must be there when it runs. Names of huggingface.co are none."""
    found, kind = [], settings["tokenizer_type"] or NULL
    for name in () if kind == NULL else ("tokenizer_model", "vocab_file", "merge_file"):
        path = settings[name] or ""
        is_file = name != "tokenizer_model" or kind in _FROM_FILES or path.startswith((".", "/"))
        if path and is_file and "://" not in path:
            other = f"; for a name on huggingface.co, tokenizer_type={_HUGGING_FACE}" if kind in _FROM_FILES else ""
            found.append(Requirement("file", os.path.join(cwd, path), f"correct '{name}'{other}"))
    return found


def use_null_tokenizer(settings: Settings, size: int) -> None:
    """Take tokens as they are; the last of them ends a document."""
    settings.set("tokenizer_type", NULL)
    settings.set("vocab_size", size - _uncounted(settings))


def tokens(settings: Settings) -> int:
    """How many tokens the model knows, without padding; 0: the tokenizer decides."""
    size = settings["vocab_size"]
    return size + _uncounted(settings) if size else 0


def _uncounted(settings: Settings) -> int:
    """Until 0.17, Megatron's NullTokenizer adds the end of document."""
    return int(settings["tokenizer_type"] == NULL and not settings.knows("null_tokenizer_eod_id"))
