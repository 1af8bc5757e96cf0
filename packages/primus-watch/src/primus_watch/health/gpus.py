"""Which GPUs of this node are hot, slow, or lose data: by what AMD's driver says of them."""

from __future__ import annotations

import os
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from primus_machine.gpus import amd, state
from primus_machine.gpus.devices import Gpu
from primus_machine.gpus.state import Sensor, State
from primus_machine.host import HostRoot
from primus_watch.steps.rules import NONE, Report, with_factor

__all__ = ["GpuRules", "Gpus", "rules"]

_THREE = 3
"""GPUs, of which one can be the odd one."""


@dataclass(frozen=True, slots=True)
class GpuRules:
    """`data/gpus.toml` says what the numbers mean."""

    hot_looks: int
    celsius: float
    slow_looks: int
    factor: float
    busy: int
    corrected: int


def rules(factors: Mapping[str, float] = NONE) -> GpuRules:
    """Those of `data/gpus.toml`, with a person's own factor."""
    with open(f"{os.path.dirname(os.path.dirname(__file__))}/data/gpus.toml", "rb") as file:
        rows = tomllib.load(file)
    hot, slow, errors = (rows[name] for name in ("gpu_hot", "slow_gpu", "gpu_errors"))
    return GpuRules(
        hot["looks"],
        hot["celsius"],
        slow["looks"],
        with_factor(slow, "slow_gpu", factors)["factor"],
        slow["busy"],
        int(errors["corrected"]),
    )


@dataclass(frozen=True, slots=True)
class _Look:
    """One GPU now."""

    address: str
    ranks: tuple[int, ...]
    """Those that use it; empty: not known."""
    state: State
    errors: tuple[int, int]
    """Uncorrected and corrected, as far as they can be read."""

    @property
    def name(self) -> str:
        """`GPU 0000:05:00.0 of rank 3`."""
        ranks = ", ".join(map(str, self.ranks))
        return f"GPU {self.address}" + (f" of rank{'s' * (len(self.ranks) > 1)} {ranks}" if ranks else "")

    @property
    def readings(self) -> str:
        """`1321 MHz, 742 W, 87 °C`."""
        found = self.state
        pairs = ((found.mhz, "MHz"), (found.watts, "W"), (found.celsius, "°C"))
        return ", ".join(f"{value:.0f} {unit}" for value, unit in pairs if value is not None)


class Gpus:
    """AMD's GPUs of this node, from the first look on."""

    def __init__(self, host: HostRoot, factors: Mapping[str, float] = NONE) -> None:
        self._host, self._rules, self._devices = host, rules(factors), amd.read(host).gpus
        self._answered: set[str] = set()
        self._first: dict[str, tuple[int, int]] = {}
        self._odd: Counter[tuple[str, str]] = Counter()
        self._reported: set[tuple[str, str]] = set()

    def reports(self, step: int, ranks: Sequence[int]) -> Iterator[Report]:
        """What is wrong, once for each GPU and kind. `ranks`: those of this node."""
        looks = self._looks(ranks)
        found = [(look, event, words) for look in looks for event, words in self._wrong(look, looks)]
        for look, event, words in found:
            key = (look.address, event)
            self._odd[key] += 1
            if key not in self._reported and self._odd[key] >= self._needed(event):
                self._reported.add(key)
                yield self._report(look, event, words, step)
        now = {(look.address, event) for look, event, _ in found}
        self._odd = Counter({key: count for key, count in self._odd.items() if key in now})

    def wrong(self, ranks: Sequence[int]) -> list[str]:
        """What is wrong now, however long."""
        looks = self._looks(ranks)
        lines = [f"{look.name} {words}" for look in looks for _, words in self._wrong(look, looks)]
        lost = [look.name for look in looks if look.address in self._answered and not look.state.sensors]
        return lines + [f"{name} does not answer: its driver says no temperature any more" for name in lost]

    def _looks(self, ranks: Sequence[int]) -> list[_Look]:
        found = [self._look(address, users) for address, users in _users(self._devices, ranks).items()]
        self._answered |= {look.address for look in found if look.state.sensors}
        return found

    def _look(self, address: str, ranks: tuple[int, ...]) -> _Look:
        counts = state.errors(self._host, address).values()
        errors = (sum(pair[0] or 0 for pair in counts), sum(pair[1] or 0 for pair in counts))
        self._first.setdefault(address, errors)
        return _Look(address, ranks, state.read(self._host, address), errors)

    def _needed(self, event: str) -> int:
        return {"gpu_hot": self._rules.hot_looks, "slow_gpu": self._rules.slow_looks}.get(event, 1)

    def _wrong(self, look: _Look, looks: Sequence[_Look]) -> Iterator[tuple[str, str]]:
        """Events and their words."""
        if hot := self._hot(look):
            limit = hot.critical or self._rules.celsius
            yield "gpu_hot", f"is hot: {hot.name or 'it'} has {hot.celsius:.0f} °C of {limit:.0f} ({look.readings})"
        others = [one.state.mhz for one in looks if one is not look and one.state.mhz]
        if self._is_slow(look, others):
            yield "slow_gpu", f"is slow: {look.readings}, while the others have {median(others):.0f} MHz"
        new = [now - first for now, first in zip(look.errors, self._first[look.address], strict=True)]
        if new[0] > 0 or new[1] >= self._rules.corrected:
            yield "gpu_errors", f"has had {new[0]} uncorrected and {new[1]} corrected errors since the run began"

    def _hot(self, look: _Look) -> Sensor | None:
        found = (one for one in look.state.sensors if one.celsius >= (one.critical or self._rules.celsius))
        return next(found, None)

    def _is_slow(self, look: _Look, others: Sequence[float]) -> bool:
        mhz, busy = look.state.mhz, look.state.busy_percent
        if mhz is None or busy is None or len(others) < _THREE - 1:
            return False
        return busy >= self._rules.busy and mhz * self._rules.factor < median(others)

    def _report(self, look: _Look, event: str, words: str, step: int) -> Report:
        found = look.state
        pairs = {"mhz": found.mhz, "watts": found.watts, "celsius": found.celsius}
        figures = {name: value for name, value in pairs.items() if value is not None}
        first = {"gpu_rank": look.ranks[0]} if look.ranks else {}
        message = f"{look.name} on {self._host.hostname()} {words}" + (f"; step {step}" if step else "")
        return Report(event, message, step, True, {"gpu": look.address, **first, **figures})


def _users(devices: Sequence[Gpu], ranks: Sequence[int]) -> Mapping[str, tuple[int, ...]]:
    """The ranks of each GPU: the first has the first device. Where their numbers differ, none is known."""
    users: dict[str, tuple[int, ...]] = {}
    numbers = sorted(ranks) if len(ranks) == len(devices) else [None] * len(devices)
    for gpu, rank in zip(devices, numbers, strict=True):
        users[gpu.pci_address] = (*users.get(gpu.pci_address, ()), *(() if rank is None else (rank,)))
    return users
