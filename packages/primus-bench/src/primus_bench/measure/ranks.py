"""The processes that measure together, and what they tell each other.

They talk through the store in which torchrun's ranks meet, and not by the collectives that are measured.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, NamedTuple

import torch
from torch import distributed

from primus_core.errors import MachineError, PrimusError
from primus_machine.units import counted

__all__ = ["Place", "Ranks", "join", "use_device"]

_CHECK_DEVICE = (
    "check the device (primus direct -- preflight --gpu --level perf), then the versions of torch and the driver"
)


class Place(NamedTuple):
    """Where a rank is."""

    rank: int = 0
    world: int = 1
    local_rank: int = 0
    local_world: int = 1
    node: int = 0
    host: str = ""

    @property
    def nodes(self) -> int:
        """How many there are: each has as many ranks."""
        return max(1, self.world // self.local_world)


class Ranks:
    """All of them, as one of them sees it."""

    def __init__(self, store: Any, place: Place) -> None:
        self.store, self.place, self._turn = store, place, 0
        self.hosts: tuple[str, ...] = tuple(self.exchange(place.host))

    def exchange(self, value: Any) -> list[Any]:
        """What each of them says, by rank. All must call it, in the same order, with JSON values."""
        found = self.collect(value)
        key = f"{self._turn}/all"
        if self.place.rank == 0:
            self.store.set(key, json.dumps(found))
        everyone: list[Any] = json.loads(self.store.get(key))
        return everyone

    def collect(self, value: Any) -> list[Any]:
        """The same on rank 0; nothing on the others, which do not wait."""
        self._turn += 1
        self.store.set(f"{self._turn}/{self.place.rank}", json.dumps(value))
        if self.place.rank:
            return []
        keys = [f"{self._turn}/{rank}" for rank in range(self.place.world)]
        return [json.loads(text) for text in self.store.multi_get(keys)]

    def require_right(self, what: str, wrong: str, fix: str = _CHECK_DEVICE) -> None:
        """Refuse a wrong result, which has no speed. `wrong`: what is wrong with this rank's; empty: nothing.

        All ranks end with the same message: whichever is heard first has the reason.

        Raises:
            PrimusError: the result of one is wrong.
        """
        for rank, text in enumerate(self.exchange(wrong)):
            if text:
                where = f"rank {rank} ({self.hosts[rank]})"
                raise PrimusError(f"{what} has a wrong result on {where}; its speed is not reported", why=text, fix=fix)


def join(environ: Mapping[str, str], timeout_s: float = 600.0) -> Ranks:
    """Meet the others; a process without a launcher is alone. `timeout_s`: the longest wait for one of them."""
    world = int(environ.get("WORLD_SIZE", "1"))
    if world == 1:
        return Ranks(distributed.HashStore(), Place(host=platform.node()))
    store, rank, world = next(distributed.rendezvous("env://"))
    store.set_timeout(timedelta(seconds=timeout_s))
    place = Place(
        rank=rank,
        world=world,
        local_rank=int(environ["LOCAL_RANK"]),
        local_world=int(environ["LOCAL_WORLD_SIZE"]),
        node=int(environ.get("GROUP_RANK", "0")),
        host=platform.node(),
    )
    return Ranks(distributed.PrefixStore("primus", store), place)


def use_device(kind: str, place: Place) -> None:
    """Choose this rank's own GPU, where it is to measure GPUs.

    Raises:
        MachineError: there are fewer GPUs than ranks.
    """
    if kind != "cuda":
        return
    if (count := torch.cuda.device_count()) < place.local_world:
        gpus = counted(count, "GPU")
        raise MachineError(f"{place.host} has {gpus} that torch can use, for {place.local_world} ranks",
                           fix=f"set GPUS_PER_NODE={count}" if count else "measure the CPU: --device cpu")  # fmt: skip
    torch.cuda.set_device(place.local_rank)
