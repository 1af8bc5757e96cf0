"""The libraries that encode, each with one tokenizer: text to ids, in threads."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np

from primus_data import memory
from primus_data.tokenizers.definition import Encoded, Engine, joined

__all__ = ["GigatokenEngine", "SentencePieceEngine", "TiktokenEngine", "TokenizersEngine", "built"]

_CHARACTERS = 1 << 18
"""Characters that are encoded at a time where a library makes an object of each token, of about 200 bytes."""
_SHARE = 1 << 16
"""Characters that a thread of ours encodes at a time."""
_REMEMBERED = 3 << 24
"""Characters for each thread of gigatoken, until it forgets the words that it has met: to begin anew takes 0.2 s."""
_NEW = (*map(chr, range(0x11DE0, 0x11DEA)), *map(chr, range(0x16FF4, 0x16FF7)))
"""Digits and numbers of Unicode 17, which gigatoken 0.10 does not know yet and tokenizers 0.23 does."""


class GigatokenEngine:
    """gigatoken: it knows neither post-processors nor ids that begin elsewhere than at 0, so both are done here.

    It decodes with the reference, which is loaded for that, or for a text with a character that is too new for it.
    It remembers each word that it has met, without a bound, so it is built anew after much text.
    """

    name = "gigatoken"

    def __init__(
        self,
        build: Callable[[], Any],
        reference: Callable[[], Engine],
        *,
        threads: int,
        around: tuple[Sequence[int], Sequence[int]] = ((), ()),
        rotated: tuple[int, int] = (0, 0),
    ) -> None:
        self._build, self._tokenizer = build, build()
        self._left = self._most = _REMEMBERED * max(threads, 2)
        # In a forked process there is no pool, and gigatoken finds that out itself.
        self._parallel = False if threads == 1 else None
        self._build_reference = reference
        self._around = around
        self._rotated = rotated

    def encode(self, texts: Sequence[str]) -> Encoded:
        found = self._encoded(texts)
        new = [number for number, text in enumerate(texts) if not text.isascii() and any(map(text.__contains__, _NEW))]
        if not new:
            return found
        rows = np.split(found[0], np.cumsum(found[1])[:-1])
        for number in new:
            rows[number] = self._reference.encode([texts[number]])[0]
        return joined(rows)

    def _encoded(self, texts: Sequence[str]) -> Encoded:
        self._left -= sum(map(len, texts))
        if self._left < 0:
            self._left = self._most
            del self._tokenizer  # before there is another one
            memory.give_back()
            self._tokenizer = self._build()
        with _without_awkward():
            ids, counts = self._tokenizer.encode_batch(list(texts), parallel=self._parallel)
        by, modulus = self._rotated
        if modulus:
            ids = (ids + np.uint32(by)) % np.uint32(modulus)
        return _surrounded(ids, counts, *self._around)

    def decode(self, ids: Sequence[int]) -> str:
        return self._reference.decode(ids)

    @cached_property
    def _reference(self) -> Engine:
        return self._build_reference()


class TokenizersEngine:
    """Hugging Face's tokenizers."""

    name = "tokenizers"

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    def encode(self, texts: Sequence[str]) -> Encoded:
        return joined([one.ids for some in _batches(texts) for one in self._encodings(some)])

    def _encodings(self, texts: list[str]) -> Iterator[Any]:
        yield from self._tokenizer.encode_batch_fast(texts)

    def decode(self, ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=False))

    def keeps(self, tokens: Iterable[str]) -> bool:
        """Whether the model makes each of these words one token."""
        tokenize = self._tokenizer.model.tokenize
        return all(len(tokenize(token)) == 1 for token in tokens)


class TiktokenEngine:
    """tiktoken, which takes special tokens in a text for what they say, as Megatron calls it.

    Its regex library gives up where a million spaces stand in a row. `reference` encodes such a text, if there is one.
    """

    name = "tiktoken"

    def __init__(
        self,
        encoding: Any,
        *,
        threads: int,
        around: tuple[Sequence[int], Sequence[int]] = ((), ()),
        reference: Callable[[], Engine] | None = None,
    ) -> None:
        self._encoding, self._threads = encoding, threads
        self._around = around
        self._build_reference = reference

    def encode(self, texts: Sequence[str]) -> Encoded:
        with ThreadPoolExecutor(self._threads) as pool:
            ids, counts = joined(list(chain.from_iterable(pool.map(self._rows, _batches(texts, _SHARE)))))
        return _surrounded(ids, counts, *self._around)

    def _rows(self, texts: list[str]) -> list[Any]:
        return [self._row(text) for text in texts]

    def _row(self, text: str) -> Any:
        try:
            return self._encoding.encode_to_numpy(text, allowed_special="all")
        except ValueError:
            if self._build_reference is None:
                raise
        ids, _ = self._reference.encode([text])
        before, after = self._around
        return ids[len(before) : len(ids) - len(after)]

    def decode(self, ids: Sequence[int]) -> str:
        if self._build_reference is not None:
            return self._reference.decode(ids)
        return str(self._encoding.decode(list(ids)))

    @cached_property
    def _reference(self) -> Engine:
        assert self._build_reference is not None
        return self._build_reference()


class SentencePieceEngine:
    """sentencepiece: control symbols such as <s> are plain text for it."""

    name = "sentencepiece"

    def __init__(self, processor: Any, *, threads: int) -> None:
        self.processor, self._threads = processor, threads

    def encode(self, texts: Sequence[str]) -> Encoded:
        return joined([row for some in _batches(texts) for row in self._rows(some)])

    def _rows(self, texts: list[str]) -> Iterator[Any]:
        yield from self.processor.encode(texts, out_type=int, num_threads=self._threads)

    def decode(self, ids: Sequence[int]) -> str:
        return str(self.processor.decode_ids(list(map(int, ids))))


class _Ragged:
    """What gigatoken needs of awkward: `unflatten`, here without awkward's arrays, and a class that no text is of."""

    class Array:
        """No input is one."""

    @staticmethod
    def unflatten(ids: Any, counts: Any) -> Encoded:
        """Return both as they are."""
        return ids, counts


@contextmanager
def _without_awkward() -> Iterator[None]:
    """Let gigatoken find `_Ragged` when it imports awkward.

    awkward loads pyarrow and fsspec, too: to import it takes as long as to encode 30 MB of text. Where it cannot be
    imported, gigatoken makes an array of each text, which takes longer still for short texts.
    """
    there = sys.modules.get("awkward")
    sys.modules["awkward"] = _Ragged  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules["awkward"]
        if there is not None:
            sys.modules["awkward"] = there


def built(json: str | bytes) -> Any:
    """Gigatoken's tokenizer of a `tokenizer.json`, without the text that it was made from."""
    from gigatoken import Tokenizer

    return Tokenizer(Tokenizer.from_json(json).backend)


def _batches(texts: Sequence[str], characters: int = _CHARACTERS) -> Iterator[list[str]]:
    """The texts, some at a time; one that is longer comes alone."""
    batch: list[str] = []
    size = 0
    for text in texts:
        if batch and size + len(text) > characters:
            yield batch
            batch, size = [], 0
        batch.append(text)
        size += len(text)
    if batch:
        yield batch


def _surrounded(ids: Any, counts: Any, before: Sequence[int], after: Sequence[int]) -> Encoded:
    """The ids with those that the tokenizer puts before and after each text."""
    if not before and not after:
        return ids, counts
    more = len(before) + len(after)
    ends = np.cumsum(counts + more)
    starts = ends - counts - more
    found = np.empty(len(ids) + more * len(counts), np.uint32)
    inner = np.ones(len(found), bool)
    at = [(starts + place, one) for place, one in enumerate(before)]
    at += [(ends - len(after) + place, one) for place, one in enumerate(after)]
    for places, one in at:
        found[places] = one
        inner[places] = False
    found[inner] = ids
    return found, counts + more
