"""Which tokenizer a run has, and how many tokens its model knows."""

from __future__ import annotations

import os
from typing import Any

from primus_core.config.document import Document
from primus_core.plan.plan import Requirement
from primus_megatron.settings import Settings

__all__ = [
    "NULL",
    "choose_tokenizer",
    "of_model",
    "rows",
    "setting_for",
    "tokenizer_files",
    "tokens",
    "use_null_tokenizer",
]

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
        fix = "set vocab_size to the number of tokens that the data were prepared with"
        raise settings.error("vocab_size", "'vocab_size' is not set", why=f"{NULL} has no vocabulary", fix=fix)
    if kind is None and settings["mock_data"]:
        use_null_tokenizer(settings, settings["vocab_size"])
    elif kind is None and settings["tokenizer_model"]:
        settings.set("tokenizer_type", _HUGGING_FACE)
    elif kind is None:
        fix = (
            f"prepared data are numbers already: set tokenizer_type={NULL} and vocab_size\n"
            "or set tokenizer_model to the model's name at huggingface.co, or to its folder"
        )
        raise settings.error("tokenizer_type", "there is no tokenizer", why="the data need a tokenizer", fix=fix)
    if settings["vocab_size"] and not settings["tokenizer_type"].startswith("Null"):
        # Otherwise Megatron would go by the tokenizer, which often has fewer tokens than its model.
        settings.default("padded_vocab_size", _padded(settings["vocab_size"], settings))


def tokenizer_files(settings: Settings, cwd: str) -> list[Requirement]:
    """The files of the tokenizer, which must be there when it runs. Names of huggingface.co are none.

    Raises:
        ConfigError: the tokenizer of a model is a single file.
    """
    found, kind = [], settings["tokenizer_type"] or NULL
    own = os.path.join(cwd, settings["tokenizer_model"] or "")
    if kind == _HUGGING_FACE and os.path.isfile(own):
        what = f"'tokenizer_model: {settings['tokenizer_model']}' is a file"
        fix = f"name its folder; or, for prepared data: tokenizer_type={NULL}, and vocab_size"
        raise settings.error("tokenizer_model", what, why=f"Megatron's {kind} loads a whole folder", fix=fix)
    if kind == _HUGGING_FACE and settings["tokenizer_model"] and os.path.isdir(own):
        fix = "name the folder of a model's tokenizer, which tokenizer_config.json describes"
        return [Requirement("file", f"{own}/*config.json", fix)]
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


def rows(settings: Settings) -> int:
    """How many tokens the embedding has room for, padding included; 0: the tokenizer decides."""
    padded = settings["padded_vocab_size"] if settings.knows("padded_vocab_size") else None
    return int(padded or _padded(tokens(settings), settings))


def setting_for(size: int, settings: Settings) -> str:
    """The setting with which the model has at least so many tokens, as one types it."""
    if settings["vocab_size"] and not settings.document.data.get("padded_vocab_size"):
        return f"vocab_size={size - _uncounted(settings)}"
    return f"padded_vocab_size={_padded(size, settings)}"


def _padded(size: int, settings: Settings) -> int:
    unit = int(settings["make_vocab_size_divisible_by"] * settings["tensor_model_parallel_size"])
    return -(-size // unit) * unit


def _uncounted(settings: Settings) -> int:
    """Until 0.17, Megatron's NullTokenizer adds the end of document."""
    return int(settings["tokenizer_type"] == NULL and not settings.knows("null_tokenizer_eod_id"))
