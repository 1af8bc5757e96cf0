"""The health of this node while a run trains: a look at GPUs now and then, and at all when ranks hang."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from primus_machine.host import HostRoot
from primus_watch.health.gpus import Gpus
from primus_watch.health.ports import Ports
from primus_watch.steps.rules import NONE, Report

__all__ = ["Health"]

_EVERY_S = 10.0


class Health:
    """One for each node of a run."""

    def __init__(self, host: HostRoot, factors: Mapping[str, float] = NONE) -> None:
        self._gpus, self._ports = Gpus(host, factors), Ports(host)
        self._next = 0.0

    def reports(self, step: int, ranks: Sequence[int], now: float) -> Iterator[Report]:
        """What is wrong with GPUs: they are looked at every 10 seconds."""
        if now >= self._next:
            self._next = now + _EVERY_S
            yield from self._gpus.reports(step, ranks)

    def wrong(self, ranks: Sequence[int]) -> list[str]:
        """What is wrong now with GPUs and network, in words."""
        return [*self._gpus.wrong(ranks), *self._ports.wrong()]
