"""Decides what encodes: gigatoken if it takes the tokenizer and is right about the texts of `proof`."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from primus_core import get_logger
from primus_data.tokenizers import proof
from primus_data.tokenizers.definition import Definition, Encoded, Engine, without_panics
from primus_machine.errors import RequestError

__all__ = ["Chosen", "chosen", "threads_for"]

_MOST_THREADS = 1024
"""More only wait for each other; at some number, the libraries fail to start them."""


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
                    raise RequestError(f"text {number} is no Unicode: it has a lone surrogate") from None
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
    with _pools_of(threads):
        engine = _engine(definition)
        engine.encode(())
    return Chosen(engine, definition.vocab_size, definition.eod, definition.digest)


def threads_for(wanted: int) -> int:
    """How many threads encode; 0: as many as this process may use."""
    return min(wanted, _MOST_THREADS) if wanted > 0 else len(os.sched_getaffinity(0))


@contextmanager
def _pools_of(threads: int) -> Iterator[None]:
    """Rust's pools read their size from the environment when they are made: when the first texts are encoded."""
    name = "RAYON_NUM_THREADS"
    before = os.environ.get(name)
    os.environ[name] = str(threads)
    try:
        yield
    finally:
        del os.environ[name]
        if before is not None:
            os.environ[name] = before


def _engine(definition: Definition) -> Engine:
    reference = definition.reference()
    if not definition.fast:
        return reference
    texts = proof.texts(definition.specials)
    expected = reference.encode(texts)
    del reference  # two of them at once take twice the memory
    _give_back_memory()
    refusals = []
    for build in definition.fast:
        found, why = _tried(build, texts, expected)
        _give_back_memory()
        if found is not None:
            break
        refusals.append(why)
    else:
        found = definition.reference()
    if refusals:
        get_logger().info("tokenizer_slow", message=f"data: {found.name} encodes, gigatoken cannot: {refusals[0]}")
    return found


def _tried(build: Callable[[], Engine], texts: Sequence[str], expected: Encoded) -> tuple[Engine | None, str]:
    try:
        engine = build()
        difference = proof.difference(texts, engine.encode(texts), expected)
    except BaseException as error:  # a panic of Rust is no Exception
        if not isinstance(error, RuntimeError | ValueError) and type(error).__module__ != _PANIC:
            raise
        return None, str(error).partition("\n")[0]
    return (None, difference) if difference else (engine, "")


def _give_back_memory() -> None:
    """What is freed goes back to the system: a vocabulary of 128,000 tokens leaves 100 MB behind."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc has it
    if trim is not None:
        trim(0)


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except (AttributeError, UnicodeEncodeError):
        return False
    return True
