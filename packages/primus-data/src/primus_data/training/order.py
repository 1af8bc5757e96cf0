"""The order of samples, from the lengths of documents alone: the one of Megatron's `GPTDataset` and `BlendedDataset`.

Documents are shuffled and read as one row of tokens, again for each epoch; sample `i` of the row has `length` tokens
and the one that follows; then the samples are shuffled. numpy's generator is Megatron's, so that the same seed, length
and number of samples give the same order, in each process and in each framework. Source: `megatron/core/datasets/`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from primus_data.training import SEED

__all__ = ["Asked", "Blend", "Order", "Piece", "cut", "of_rank", "weighted"]

_WORTH_MIXING = 0.80
"""A last epoch of which less than this is needed is shuffled by itself."""
_SURPLUS = 0.005
"""What each part of a blend has more samples than its weight asks for (`mid_level_dataset_surplus`)."""


class Asked(NamedTuple):
    """What is asked of the data."""

    length: int
    """Tokens of a sample, without the one that follows."""
    samples: int | None = None
    """How many are drawn in all; None: as many as one epoch has. It decides how many epochs are shuffled together."""
    seed: int = SEED


class Piece(NamedTuple):
    """Some tokens of a document."""

    document: int
    start: int
    length: int


class Order:
    """The samples of one prefix."""

    def __init__(self, lengths: NDArray[Any], documents: range, asked: Asked) -> None:
        """Of these documents, by their lengths in tokens.

        Raises:
            ValueError: they have too few tokens for one sample.
        """
        self.length = asked.length
        tokens = int(lengths[documents.start : documents.stop].sum(dtype=np.int64))
        if tokens <= asked.length:
            raise ValueError(f"{len(documents)} documents with {tokens} tokens, fewer than a sample of {asked.length}")
        epochs = 1 if asked.samples is None else max(1, -(-(asked.samples * asked.length + 1) // tokens))
        random = np.random.RandomState(asked.seed)
        before = ((epochs - 1) * tokens - 1) // asked.length
        apart = epochs > 1 and (asked.samples or 0) - before < int(_WORTH_MIXING * ((tokens - 1) // asked.length))
        self.documents = _documents(documents, (epochs - 1, 1) if apart else (epochs,), random)
        self.ends = np.cumsum(lengths[self.documents], dtype=np.int64)
        count = (epochs * tokens - 1) // asked.length
        self.samples = _samples((before, count) if apart else (count,), random)

    def __len__(self) -> int:
        return len(self.samples)

    def pieces(self, number: int) -> Iterator[Piece]:
        """What sample `number` is made of, the token that follows included."""
        at = int(self.samples[number]) * self.length
        wanted = self.length + 1
        place = int(np.searchsorted(self.ends, at, side="right"))
        while wanted:
            begins = int(self.ends[place - 1]) if place else 0
            count = min(wanted, int(self.ends[place]) - at)
            if count:
                yield Piece(int(self.documents[place]), at - begins, count)
            at, wanted, place = at + count, wanted - count, place + 1


def _documents(documents: range, epochs: Sequence[int], random: np.random.RandomState) -> NDArray[np.int32]:
    parts = []
    for number in epochs:
        part = np.tile(np.arange(documents.start, documents.stop, dtype=np.int32), number)
        random.shuffle(part)
        parts.append(part)
    return np.concatenate(parts)


def _samples(ends: Sequence[int], random: np.random.RandomState) -> NDArray[Any]:
    kind: Any = np.int64 if ends[-1] >= np.iinfo(np.uint32).max - 1 else np.uint32
    parts, start = [], 0
    for end in ends:
        part = np.arange(start, end, dtype=kind)
        random.shuffle(part)
        parts.append(part)
        start = end
    return np.concatenate(parts)


class Blend:
    """The samples of several prefixes, mixed by their weights."""

    def __init__(self, orders: Sequence[Order], weights: Sequence[float] | None, samples: int | None) -> None:
        """`weights` None: as many of each as it has, in all at most `samples`; otherwise `samples` is what was asked.

        Raises:
            ValueError: `weights` without a number of samples.
        """
        self.orders = orders
        if weights is None:
            sizes = [len(order) for order in orders]
            most = sum(sizes)
            self.parts, self.numbers = _mixed(_shares(sizes), min(most, samples or most), None if samples else sizes)
        elif samples is None:
            raise ValueError("a blend with weights has no epoch")
        else:
            shares = _shares(weights)
            size = sum(math.ceil(samples * share) for share in shares)
            self.parts, self.numbers = _mixed(_shares(shares), size)

    def __len__(self) -> int:
        return len(self.parts)

    def find(self, number: int) -> tuple[int, int]:
        """Which prefix sample `number` is of, and its number there."""
        return int(self.parts[number]), int(self.numbers[number])


def weighted(weights: Sequence[float], asked: Asked) -> list[Asked]:
    """What is asked of each part of a blend with weights."""
    if asked.samples is None:
        return [asked] * len(weights)
    wanted = [math.ceil(asked.samples * share) for share in _shares(weights)]
    return [asked._replace(samples=math.ceil(count * (1 + _SURPLUS))) for count in wanted]


def _shares(weights: Sequence[float]) -> list[float]:
    """Megatron divides what is divided already once more, which may change the last bit."""
    values = np.array(weights, np.float64)
    shares: list[float] = (values / np.sum(values)).tolist()
    return shares


def _mixed(
    shares: Sequence[float], size: int, most: Sequence[int] | None = None
) -> tuple[NDArray[np.int16], NDArray[np.int64]]:
    """The part and the number in it of each sample: always of the part that has fallen behind its share the most."""
    parts, numbers = np.zeros(size, np.int16), np.zeros(size, np.int64)
    taken, left = [0] * len(shares), list(range(len(shares)))
    for number in range(size):
        so_far = float(max(number, 1))
        chosen = max(left, key=lambda part: shares[part] * so_far - taken[part])  # called here
        parts[number], numbers[number] = chosen, taken[chosen]
        taken[chosen] += 1
        if most is not None and taken[chosen] == most[chosen]:
            left.remove(chosen)
    return parts, numbers


def cut(documents: int, split: Sequence[float]) -> list[range]:
    """The documents of each part of a split such as 98, 2."""
    bounds = [0.0]
    for share in _shares(split):
        bounds.append(bounds[-1] + share)
    places = [round(bound * float(documents)) for bound in bounds]
    return [range(first, end) for first, end in itertools.pairwise(places)]


def of_rank(consumed: int, micro_batch: int, ranks: int, rank: int) -> range:
    """The samples that a data-parallel rank takes next, where `consumed` were taken by all: Megatron's sampler.

    The samples `consumed` to `consumed + micro_batch * ranks` are taken by all ranks together, so a global batch has
    the same samples on any number of ranks.
    """
    first = consumed + rank * micro_batch
    return range(first, first + micro_batch)
