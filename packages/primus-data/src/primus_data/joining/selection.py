"""Which part each document goes to: its number alone decides, so nothing is kept in memory and nothing is random.

A document has one of about a million places: by its number, or shuffled by a hash of seed and number. The parts are
ranges of places, cut where the wanted tokens or documents are reached.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from primus_data.indexed.streams import Streams
from primus_machine.errors import RequestError

__all__ = ["Cut", "Range", "Selection", "by_shares", "up_to"]

_PLACES = 1 << 20


class Selection(Protocol):
    """Says for each document the number of its part."""

    def parts(self, numbers: NDArray[Any]) -> NDArray[Any]:
        """Part of each document; -1: it is left out."""


class Range(NamedTuple):
    """The documents from `first` to before `end` are part 0."""

    first: int
    end: int

    def parts(self, numbers: NDArray[Any]) -> NDArray[Any]:
        """Part of each document; -1: it is left out."""
        return np.where((numbers >= self.first) & (numbers < self.end), 0, -1)


class Cut(NamedTuple):
    """Ranges of places."""

    documents: int
    seed: int | None
    """None: in their order."""
    ends: tuple[int, ...] = ()
    """First place behind each part; what follows the last part is left out."""

    def places(self, numbers: NDArray[Any]) -> NDArray[Any]:
        """Of each document."""
        if self.seed is None:
            return (numbers.astype("<f8") * (_PLACES / self.documents)).astype("<i8").clip(max=_PLACES - 1)
        return (_mixed(numbers.astype("<u8") + _mixed(np.array([self.seed], "<u8"))) >> np.uint64(44)).astype("<i8")

    def parts(self, numbers: NDArray[Any]) -> NDArray[Any]:
        """Part of each document; -1: it is left out."""
        found: NDArray[Any] = np.searchsorted(np.array(self.ends), self.places(numbers), "right")
        return np.where(found == len(self.ends), -1, found)


def _mixed(values: NDArray[Any]) -> NDArray[Any]:
    """The numbers of the generator splitmix64, which is short and the same everywhere."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: NDArray[Any] = values ^ (values >> np.uint64(31))
    return mixed


def by_shares(streams: Streams, shares: Sequence[float], seed: int | None, *, by_tokens: bool) -> Cut:
    """Parts whose tokens, or documents, are in such proportions, as near as whole documents allow.

    Raises:
        RequestError: there are fewer documents than parts.
        MachineError: the index contradicts itself.
    """
    cut = Cut(max(streams.layout.bounds - 1, 1), seed)
    taken, up_to_place = _amounts(streams, cut, by_tokens=by_tokens)
    if len(taken) < len(shares):
        what = f"'{streams.prefix}' cannot be split into {len(shares)} parts"
        raise RequestError(what, why=f"{len(taken)} of its documents have tokens")
    ends, before, wanted = [], 0, 0.0
    for number, share in enumerate(shares):
        wanted += share / sum(shares) * up_to_place[-1]
        most = len(taken) - (len(shares) - 1 - number)  # the parts behind it get at least one place each
        before = min(max(_nearest(up_to_place, wanted), before + 1), most)
        ends.append(int(taken[before - 1]) + 1)
    return cut._replace(ends=(*ends[:-1], _PLACES))


def _nearest(up_to_place: NDArray[Any], wanted: float) -> int:
    """How many of the places come nearest to an amount."""
    after = int(np.searchsorted(up_to_place, wanted))
    if after == len(up_to_place):
        return after
    less = up_to_place[after - 1] if after else 0
    return after + bool(up_to_place[after] - wanted < wanted - less)


def up_to(streams: Streams, tokens: int, seed: int | None) -> Cut:
    """One part with as many whole documents as have no more tokens than that.

    Raises:
        RequestError: there is none.
        MachineError: the index contradicts itself.
    """
    cut = Cut(max(streams.layout.bounds - 1, 1), seed)
    taken, up_to_place = _amounts(streams, cut, by_tokens=True)
    count = int(np.searchsorted(up_to_place, tokens, "right"))
    if not count:
        why = "there are no tokens"
        if len(up_to_place):
            why = f"the documents that come first in this order have {int(up_to_place[0]):,} tokens"
        what = f"'{streams.prefix}' cannot be cut to {tokens:,} tokens"
        raise RequestError(what, why=why, fix="increase --max-tokens, or choose another --seed")
    return cut._replace(ends=(int(taken[count - 1]) + 1,))


def _amounts(streams: Streams, cut: Cut, *, by_tokens: bool) -> tuple[NDArray[Any], NDArray[Any]]:
    """The places that have tokens, and the tokens or documents up to each."""
    tokens, documents = np.zeros(_PLACES, "<i8"), np.zeros(_PLACES, "<i8")
    for first, bounds in streams.document_bounds():
        places = cut.places(np.arange(first, first + len(bounds) - 1))
        np.add.at(tokens, places, np.diff(streams.positions(bounds)))
        documents += np.bincount(places, minlength=_PLACES)
    taken = np.flatnonzero(tokens)
    return taken, np.cumsum(tokens if by_tokens else documents)[taken]
