"""Texts as token ids, laid out as Megatron's tool does: empty sequences left out, the end of a document appended."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from primus_core.errors import MachineError
from primus_data.indexed.layout import TYPES, type_for
from primus_data.sources.documents import Text
from primus_data.tokenizers import Tokenizer

__all__ = ["Encoder", "Rows"]

Rows = tuple[NDArray[Any], NDArray[Any], NDArray[Any]]
"""All tokens, the tokens of each sequence, the sequences of each document: as `IndexedWriter.add` takes them."""


class Encoder:
    """Encodes texts. `split`: a text into its sentences; None: a text is one sequence."""

    def __init__(self, tokenizer: Tokenizer, *, append_eod: bool, split: Callable[[str], list[str]] | None) -> None:
        self.tokenizer, self.split = tokenizer, split
        self.eod = tokenizer.eod if append_eod else None
        self.type = np.dtype(f"<{TYPES[type_for(tokenizer.vocab_size)]}")
        self.largest = int(np.iinfo(self.type).max)

    def encode(self, texts: Sequence[Text]) -> Rows:
        """The documents with these texts.

        Raises:
            MachineError: the tokenizer is broken: an id does not fit into the bytes of a token.
        """
        sequences, documents = self._sequences(texts)
        tokens, lengths = self.tokenizer.encode(sequences)
        if len(tokens) and int(tokens.max()) > self.largest:
            raise MachineError(
                f"the tokenizer gave the id {int(tokens.max())}",
                why=f"ids up to {self.largest} are kept for its vocabulary of {self.tokenizer.vocab_size}",
                fix="check the tokenizer's files: they do not belong together",
            )
        tokens = tokens.astype(self.type)
        kept = lengths > 0
        counts = np.bincount(documents[kept], minlength=len(texts)).astype("<i8")
        lengths = lengths[kept]
        if self.eod is not None:
            tokens, lengths = _ended(tokens, lengths, counts, self.eod)
        return tokens, lengths, counts

    def _sequences(self, texts: Sequence[Text]) -> tuple[list[str], NDArray[Any]]:
        """All sequences, and the document of each."""
        if not self.split and all(type(text) is str for text in texts):
            return list(texts), np.arange(len(texts))  # type: ignore[arg-type]  # they are all strings
        split = self.split or (lambda text: [text])
        each = [split(text) if isinstance(text, str) else text for text in texts]
        counts = [len(one) for one in each]
        return [sequence for one in each for sequence in one], np.repeat(np.arange(len(texts)), counts)


def _ended(tokens: NDArray[Any], lengths: NDArray[Any], counts: NDArray[Any], eod: int) -> tuple[Any, Any]:
    """The same, with an end behind the last sequence of each document that has any."""
    last = np.cumsum(counts)[counts > 0] - 1
    ends = np.cumsum(lengths, dtype=np.int64)[last]
    lengths = lengths.copy()
    lengths[last] += 1
    return np.insert(tokens, ends, eod), lengths
