"""Loads samples for training: from a memory-mapped file of tokens, in random order, with torch's DataLoader.

The file has Megatron's format (`primus_data.indexed`). A sample is `seq_len` tokens and the one that follows, as
all frameworks cut them.
"""

from __future__ import annotations

import os
import random
import time
from array import array
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader

from primus_bench.benchmarks.io.options import BATCH
from primus_data.indexed import layout
from primus_data.indexed.tokens import stored_as
from primus_data.indexed.writer import IndexedWriter

__all__ = ["Loaded", "Samples", "fault", "load", "write", "wrong"]

_DOCUMENT = 65_521
_MULTIPLIER, _VOCABULARY = 40_503, 50_021
"""Prime: neighbours differ, and no sample is like another."""
_SEED = 1234

Tokens = NDArray[np.integer[Any]]


def write(prefix: str, size: int) -> None:
    """Make a file of about `size` bytes, and wait until it is on the storage."""
    one = np.ones(1, np.int64)
    with IndexedWriter(prefix, layout.type_for(_VOCABULARY)) as writer:
        for start in range(0, size // 2, _DOCUMENT):
            writer.add(_own(start, _DOCUMENT), one * _DOCUMENT, one)


def _own(start: int, count: int) -> Tokens:
    """The tokens of a file that `write` made."""
    return np.arange(start, start + count, dtype=np.int64) * _MULTIPLIER % _VOCABULARY


def fault(prefix: str) -> str:
    """Why its tokens cannot be loaded; empty: they can."""
    try:
        return layout.fault(prefix) or ("" if stored_as(prefix) else f"{prefix}.idx: its tokens are not whole numbers")
    except OSError as error:
        return f"{error.filename}: {error.strerror}"


class Samples:
    """Those of one rank, in the order in which they are loaded: a data set of torch's kind with indices."""

    def __init__(self, path: str, dtype: str, seq_len: int, order: array[int]) -> None:
        self.path, self.dtype, self.seq_len, self.order = path, dtype, seq_len, order
        self._tokens: Tokens | None = None

    @classmethod
    def of(cls, prefix: str, seq_len: int, most_bytes: int, share: tuple[int, int]) -> Self:
        """The samples of rank `share[0]` of `share[1]`: as many on each, whole batches, at most so many bytes."""
        path, dtype = f"{prefix}.bin", f"<{stored_as(prefix)}"
        rank, ranks = share
        width = np.dtype(dtype).itemsize
        there = (os.path.getsize(path) // width - 1) // seq_len
        each = min(there // ranks, most_bytes // (width * seq_len)) // BATCH * BATCH
        order = random.Random(_SEED).sample(range(there), each * ranks)  # noqa: S311  # no secret depends on it
        return cls(path, dtype, seq_len, array("q", order[rank::ranks]))

    def __len__(self) -> int:
        return len(self.order)

    @property
    def batches(self) -> int:
        """How many they are."""
        return len(self) // BATCH

    def __getitem__(self, number: int) -> torch.Tensor:
        if self._tokens is None:  # in the process that loads: a map is no message
            self._tokens = np.memmap(self.path, self.dtype, "r")
        start = self.order[number] * self.seq_len
        return torch.from_numpy(self._tokens[start : start + self.seq_len + 1].astype(np.int64))


class Loaded(NamedTuple):
    """From the first batch to the last: what comes before it is the start of the processes."""

    tokens: int
    seconds: float


def _loader(samples: Samples, workers: int) -> DataLoader[torch.Tensor]:
    return DataLoader(samples, batch_size=BATCH, num_workers=workers)


def load(samples: Samples, workers: int) -> Loaded:
    """Load all of them once."""
    batches = iter(_loader(samples, workers))
    next(batches)
    began, tokens = time.perf_counter(), 0
    for batch in batches:
        tokens += batch.shape[0] * samples.seq_len
    return Loaded(tokens, time.perf_counter() - began)


def wrong(samples: Samples, workers: int, *, is_own: bool) -> str:
    """What is wrong with what is loaded; empty: nothing. `is_own`: `write` made the file, so its content is known."""
    at = 0
    for batch in _loader(samples, workers):
        for found in batch:
            start = samples.order[at] * samples.seq_len
            right = _own(start, samples.seq_len + 1) if is_own else _read(samples, start)
            if not np.array_equal(found.numpy(), right):
                where = f"the sample of {samples.seq_len} tokens at {start}"
                return f"{samples.path} differs from what was written, in {where}"
            at += 1
    return "" if at == len(samples) else f"the loader returned {at} samples of {len(samples)}"


def _read(samples: Samples, start: int) -> Tokens:
    """The same tokens by another call."""
    dtype = np.dtype(samples.dtype)
    with open(samples.path, "rb") as file:
        file.seek(start * dtype.itemsize)
        return np.frombuffer(file.read((samples.seq_len + 1) * dtype.itemsize), dtype).astype(np.int64)
