"""The collectives: their buffers, what calls them, and what they must leave behind."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch
from torch import distributed

from primus_bench.benchmarks.comm import values

__all__ = ["COLLECTIVES", "Buffers", "Collective", "Group", "buffers", "wrong"]


@dataclass(frozen=True, slots=True)
class Group:
    """Ranks that exchange messages: those of torch's `handle`, which this process is one of."""

    ranks: tuple[int, ...]
    rank: int
    """This process, as the job counts."""
    handle: Any = None
    """None: all ranks of the job."""

    @property
    def index(self) -> int:
        """This process, as the group counts."""
        return self.ranks.index(self.rank)


@dataclass(frozen=True, slots=True)
class Buffers:
    """What one rank sends and receives."""

    sent: torch.Tensor
    received: torch.Tensor
    size: int
    """Bytes of the message, as bandwidths count them."""


Collective = Callable[[Buffers, Group], object]

_ALL_GATHER = getattr(distributed, "all_gather_single", None) or distributed.all_gather_into_tensor
_REDUCE_SCATTER = getattr(distributed, "reduce_scatter_single", None) or distributed.reduce_scatter_tensor
"""torch 2.13 warns of the older names."""


def _all_reduce(data: Buffers, group: Group) -> object:
    return distributed.all_reduce(data.received, group=group.handle)


def _all_gather(data: Buffers, group: Group) -> object:
    return _ALL_GATHER(data.received, data.sent, group=group.handle)


def _reduce_scatter(data: Buffers, group: Group) -> object:
    return _REDUCE_SCATTER(data.received, data.sent, group=group.handle)


def _all_to_all(data: Buffers, group: Group) -> object:
    return distributed.all_to_all_single(data.received, data.sent, group=group.handle)


def _broadcast(data: Buffers, group: Group) -> object:
    return distributed.broadcast(data.received, src=group.ranks[0], group=group.handle)


def _send_recv(data: Buffers, group: Group) -> object:
    """Each rank sends to the next one, and receives from the one before."""
    count, here = len(group.ranks), group.index
    exchange = [
        distributed.P2POp(distributed.isend, data.sent, group.ranks[(here + 1) % count], group.handle),
        distributed.P2POp(distributed.irecv, data.received, group.ranks[(here - 1) % count], group.handle),
    ]
    return [work.wait() for work in distributed.batch_isend_irecv(exchange)]


COLLECTIVES: Mapping[str, Collective] = MappingProxyType({
    "all_reduce": _all_reduce, "all_gather": _all_gather, "reduce_scatter": _reduce_scatter,
    "all_to_all": _all_to_all, "broadcast": _broadcast, "send_recv": _send_recv,
})  # fmt: skip
_IN_PLACE = ("all_reduce", "broadcast")


def buffers(operation: str, size: int, dtype: torch.dtype, group: Group, device: str) -> Buffers:
    """Buffers for a message of `size` bytes, or of the next smaller number that all ranks can share."""
    count = len(group.ranks)
    whole = max(1, size // dtype.itemsize // count) * count
    sent = whole // count if operation == "all_gather" else whole
    received = whole // count if operation == "reduce_scatter" else whole
    result = torch.empty(received, dtype=dtype, device=device)
    source = result if operation in _IN_PLACE else torch.empty(sent, dtype=dtype, device=device)
    return Buffers(source, result, whole * dtype.itemsize)


def wrong(operation: str, collective: Collective, data: Buffers, group: Group) -> str:
    """Run it once and say what is wrong with the result; empty: nothing."""
    data.received.fill_(math.nan if data.received.is_floating_point() else -1)  # what stays unwritten must not pass
    _draw(operation, data, group)
    collective(data, group)
    found = ((part, values.difference(*pair)) for part, pair in enumerate(_expected(operation, data, group)))
    return next((f"part {part}: {text}" for part, text in found if text), "")


def _draw(operation: str, data: Buffers, group: Group) -> None:
    """What this rank puts in."""
    here, count, like = group.index, len(group.ranks), (data.sent.dtype, str(data.sent.device))
    if operation == "all_reduce":
        values.fill(data.sent, values.term(here, count, *like))
    elif operation == "reduce_scatter":
        for part in data.sent.chunk(count):
            values.fill(part, values.term(here, count, *like))
    elif operation == "all_to_all":
        for target, part in enumerate(data.sent.chunk(count)):
            values.fill(part, values.moved(here, target, *like))
    elif operation != "broadcast" or here == 0:
        values.fill(data.sent, values.moved(here, 0, *like))


def _expected(operation: str, data: Buffers, group: Group) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """The parts of what this rank received, each with one period of what it should be."""
    here, count, like = group.index, len(group.ranks), (data.sent.dtype, str(data.sent.device))
    if operation in ("all_reduce", "reduce_scatter"):
        return [(data.received, values.expected_sum(count, *like))]
    if operation == "broadcast":
        return [(data.received, values.moved(0, 0, *like))]
    if operation == "send_recv":
        return [(data.received, values.moved((here - 1) % count, 0, *like))]
    target = here if operation == "all_to_all" else 0
    parts = enumerate(data.received.chunk(count))
    return [(part, values.moved(source, target, *like)) for source, part in parts]
