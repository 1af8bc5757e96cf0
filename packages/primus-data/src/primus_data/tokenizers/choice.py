"""Decides what encodes: gigatoken if it takes the tokenizer and is right about the texts of `proof`."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from primus_core import get_logger
from primus_data import memory, thread_pools
from primus_data.tokenizers import proof
from primus_data.tokenizers.definition import Definition, Encoded, Engine, without_panics
from primus_data.tokenizers.kept import Kept
from primus_machine.errors import RequestError

__all__ = ["Chosen", "chosen", "threads_for"]

_MOST_THREADS = 1024
"""More only wait for each other; at some number, the libraries fail to start them."""
_RUST = "RAYON_NUM_THREADS"
"""The libraries read it when the first texts are encoded."""
_PANIC = "pyo3_runtime"
"""The module, as it is called, of the class of a panic in Rust, which is no Exception and cannot be imported."""


@dataclass(frozen=True)
class Chosen:
    """A tokenizer with what encodes."""

    engine: Engine
    vocab_size: int
    eod: int | None
    digest: str

    @property
    def name(self) -> str:
        return self.engine.name

    def encode(self, texts: Sequence[str]) -> Encoded:
        try:
            with without_panics():
                return self.engine.encode(texts)
        except (TypeError, UnicodeEncodeError):
            for number, text in enumerate(texts):
                if not _is_unicode(text):
                    raise RequestError(f"text {number} is not valid Unicode: it has a lone surrogate") from None
            raise

    def decode(self, ids: Sequence[int]) -> str:
        try:
            return self.engine.decode(ids)
        except (IndexError, KeyError, OverflowError):
            what = f"ids from {min(ids):,} to {max(ids):,} are not all ids of the tokenizer"
            why = f"its vocabulary has {self.vocab_size:,} tokens"
            fix = "name the tokenizer that made the data: --tokenizer-type and --tokenizer-model"
            raise RequestError(what, why=why, fix=fix) from None


def chosen(definition: Definition, threads: int, vocab_size: int = 0) -> Chosen:
    """The tokenizer, with the fastest library that is exact for it, and its threads.

    Raises:
        RequestError: its vocabulary is not of that size, if one is given.
    """
    if vocab_size and vocab_size != definition.vocab_size:
        what = f"the tokenizer has a vocabulary of {definition.vocab_size}, and --vocab-size is {vocab_size}"
        raise RequestError(what, fix="name the tokenizer that belongs to the model, or correct --vocab-size")
    with thread_pools.limited(_RUST, threads):
        engine = _engine(definition)
        engine.encode(())
    return Chosen(engine, definition.vocab_size, definition.eod, definition.digest)


def threads_for(wanted: int) -> int:
    """How many threads encode; 0: as many as this process may use."""
    return min(wanted, _MOST_THREADS) if wanted > 0 else len(os.sched_getaffinity(0))


def _engine(definition: Definition) -> Engine:
    if not definition.fast:
        return definition.reference()
    comparison = _Comparison(definition)
    refusals = []
    for build in definition.fast:
        memory.give_back()
        found, why = _tried(build, comparison)
        if found is not None:
            break
        refusals.append(why)
    else:
        found = definition.reference()
    memory.give_back()
    if refusals:
        get_logger().info("tokenizer_slow", message=f"data: {found.name} encodes, gigatoken cannot: {refusals[0]}")
    return found


class _Comparison:
    """The texts of `proof`, and what the reference library gives for them: its digest is kept for later commands."""

    def __init__(self, definition: Definition) -> None:
        self._reference = definition.reference
        self.texts = proof.texts(definition.specials)
        self._kept = Kept("ids", definition.digest, self.texts)
        self._expected: Encoded | None = None
        self._digest = self._kept.read() or proof.digest(self._asked())

    def _asked(self) -> Encoded:
        if self._expected is None:
            self._expected = self._reference().encode(self.texts)
            self._kept.write(proof.digest(self._expected))
        return self._expected

    def difference(self, found: Encoded) -> str:
        """What differs, which the reference library says itself; empty: nothing."""
        return "" if proof.digest(found) == self._digest else proof.difference(self.texts, found, self._asked())


def _tried(build: Callable[[], Engine], comparison: _Comparison) -> tuple[Engine | None, str]:
    try:
        engine = build()
        difference = comparison.difference(engine.encode(comparison.texts))
    except BaseException as error:  # a panic of Rust is no Exception
        if not isinstance(error, RuntimeError | ValueError) and type(error).__module__ != _PANIC:
            raise
        return None, str(error).partition("\n")[0]
    return (None, difference) if difference else (engine, "")


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except (AttributeError, UnicodeEncodeError):
        return False
    return True
