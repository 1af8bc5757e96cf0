"""Tokenizers, by Megatron's names: the same ids as Megatron's tool, from the fastest library that is exact for them.

`load` reads what `--tokenizer-type` and `--tokenizer-model` name. For each text it gives the ids that the tokenizers of
megatron-core give. Where gigatoken takes a tokenizer, it encodes, about a hundred times as fast; before that, it must
give the same ids for 12,000 texts that are known to be difficult (`proof`). Otherwise the reference library
encodes: tokenizers, tiktoken or sentencepiece, with threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from primus_machine.errors import RequestError, suggestion

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["KINDS", "Tokenizer", "load"]

_SENTENCEPIECE = ("SentencePieceTokenizer", "GPTSentencePieceTokenizer", "Llama2Tokenizer")
KINDS = ("HuggingFaceTokenizer", "GPT2BPETokenizer", "TikTokenizer", *_SENTENCEPIECE, "NullTokenizer")
"""The values of `--tokenizer-type`: Megatron's own names."""


class Tokenizer(Protocol):
    """From text to ids, and back."""

    @property
    def name(self) -> str:
        """What encodes: "gigatoken", "tokenizers", "tiktoken", "sentencepiece" or "numbers"."""

    @property
    def vocab_size(self) -> int:
        """As Megatron counts it, added tokens included: it decides how many bytes an id takes."""

    @property
    def eod(self) -> int | None:
        """The id that ends a document, as Megatron takes it. None: the tokenizer has none."""

    @property
    def digest(self) -> str:
        """The sha256 over all that decides the ids: files, kind and settings."""

    def encode(self, texts: Sequence[str]) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        """All ids in a row, and how many there are of each text.

        Raises:
            RequestError: a text is not valid Unicode: it has a lone surrogate.
        """

    def decode(self, ids: Sequence[int]) -> str:
        """The text of these ids; what is no UTF-8 becomes U+FFFD."""


def load(kind: str, model: str, *, threads: int = 0, vocab_size: int = 0, merges: str = "") -> Tokenizer:
    """The tokenizer of that kind, from the file or folder `model`.

    `threads` limits the threads that encode; 0: as many as this process may use. gigatoken and tokenizers make their
    threads once for a process: the first tokenizer that is loaded decides.

    Raises:
        RequestError: the kind is unknown, a file is missing or is no such tokenizer, the vocabulary has another size.
        MachineError: the library that reads it is not installed.
    """
    if kind not in KINDS:
        near = suggestion(kind, KINDS)
        fix = f"{near} " if near else ""
        raise RequestError(f"tokenizer type '{kind}' is unknown", fix=f"{fix}known: {', '.join(KINDS)}")
    from primus_data.tokenizers.choice import chosen, threads_for
    from primus_data.tokenizers.definition import without_panics

    count = threads_for(threads)
    with without_panics():
        try:
            definition = _definition(kind, model, count, vocab_size, merges)
        except RequestError as error:
            raise _with_fix(error, kind, model) from None
        return chosen(definition, count, vocab_size)


def _with_fix(error: RequestError, kind: str, model: str) -> RequestError:
    """The error, with the type that the file looks like."""
    from primus_data.tokenizers.recognition import kind_of

    found = kind_of(model)
    if error.fix or not found or found == kind:
        return error
    return RequestError(error.what, why=error.why, fix=f"it looks like one for --tokenizer-type {found}")


def _definition(kind: str, model: str, threads: int, vocab_size: int, merges: str):  # type: ignore[no-untyped-def]
    if kind == "HuggingFaceTokenizer":
        from primus_data.tokenizers import huggingface

        return huggingface.define(model, threads)
    if kind == "GPT2BPETokenizer":
        from primus_data.tokenizers import huggingface

        return huggingface.define_gpt2(model, merges, threads)
    if kind == "TikTokenizer":
        from primus_data.tokenizers import ranks

        return ranks.define(model, threads, vocab_size)
    if kind == "NullTokenizer":
        from primus_data.tokenizers import numbers

        return numbers.define(vocab_size)
    from primus_data.tokenizers import sentencepieces

    return sentencepieces.define(model, threads)
