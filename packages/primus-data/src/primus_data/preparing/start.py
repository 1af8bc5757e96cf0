"""From settings to what a preparation is given: finds the files, loads the tokenizer, and refuses what does not fit."""

from __future__ import annotations

import os

from primus_core import get_logger
from primus_core.errors import Mistakes, RequestError
from primus_data import tokenizers
from primus_data.preparing.encoding import Encoder
from primus_data.preparing.given import Given
from primus_data.preparing.sentences import splitter
from primus_data.preparing.settings import Settings, fingerprint, outcome_of
from primus_data.sources import files
from primus_data.sources.files import File
from primus_data.sources.walk import LeftOut
from primus_data.tokenizers import Tokenizer

__all__ = ["begun"]


def begun(settings: Settings) -> Given:
    """What the settings name.

    Raises:
        RequestError: something is wrong with them; all that is.
        MachineError: a library or a model is missing.
    """
    mistakes, found, tokenizer = Mistakes(), tuple[File, ...](), None
    with mistakes:
        found = _files(settings)
    with mistakes:
        tokenizer = _tokenizer(settings)
    mistakes.refuse()
    assert tokenizer is not None
    split = splitter(settings.language, keep_newlines=settings.keeps_newlines) if settings.splits_sentences else None
    outcome = outcome_of(settings, found, tokenizer.digest)
    encoder = Encoder(tokenizer, append_eod=settings.append_eod, split=split)
    return Given(settings, found, encoder, outcome, fingerprint(outcome))


def _files(settings: Settings) -> tuple[File, ...]:
    left_out = LeftOut()
    found = files.find(settings.inputs, left_out)
    if left_out.names:
        get_logger().warning("input_left_out", message=f"--input: left out {left_out}", files=left_out.names)
    if not sum(file.size for file in found):
        raise RequestError(f"--input: {found[0].path} is empty" if len(found) == 1 else "--input: all files are empty",
                           fix="name files with documents")  # fmt: skip
    for word in settings.inputs:
        if os.path.isdir(word) and _is_below(settings.folder, word):
            what = f"the output '{settings.prefix}' would be in the folder '{word}' of --input"
            raise RequestError(
                what, why="the next command would take it for input", fix="choose another --output-prefix"
            )
    if len(settings.keys) > 1 and any(file.kind == "text" for file in found):
        raise RequestError("--json-keys names several keys, and a text file has none", fix="name one key")
    return found


def _is_below(path: str, folder: str) -> bool:
    return os.path.commonpath((os.path.realpath(path), whole := os.path.realpath(folder))) == whole


def _tokenizer(settings: Settings) -> Tokenizer:
    found = tokenizers.load(
        settings.tokenizer_type,
        settings.tokenizer_model,
        threads=settings.workers,
        vocab_size=settings.vocab_size,
        merges=settings.merges,
    )
    if settings.append_eod and found.eod is None:
        fix = "prepare without --append-eod (of a training: data.append_eod=false), or name a tokenizer that has one"
        raise RequestError("--append-eod: the tokenizer has no end-of-document token", fix=fix)
    return found
