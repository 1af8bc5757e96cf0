"""Where a device sits on the PCI bus: below which bridges, and how far from another device.

Bridges say in files which buses lie behind them, so the tree can be read without following links, from a capture too.
The words are those of `nvidia-smi topo -m`, which NCCL uses as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from primus_machine.gpus.devices import PCI, VENDORS
from primus_machine.host import HostRoot, number

__all__ = ["READS", "Bridge", "Bus", "Path", "read"]

Path = Literal["PIX", "PXB", "PHB", "NODE", "SYS", "?"]
"""What lies between two devices: one switch; several; the root complex; a NUMA node; the way to another; not known."""
READS = (
    f"{PCI}/*/secondary_bus_number",
    f"{PCI}/*/subordinate_bus_number",
    f"{PCI}/*/vendor",
    f"{PCI}/*/numa_node",
)
_BOARD = VENDORS["amd"]
"""A bridge of this vendor is on a GPU's own board, and no switch of the host: AMD's root ports are of 1022."""


class Bridge(NamedTuple):
    """A PCI bridge."""

    address: str
    first: int
    """Of the buses behind it."""
    last: int
    is_board: bool


class Bus(NamedTuple):
    """The bridges of a machine. None of them: it does not show any."""

    bridges: Sequence[Bridge]

    def above(self, address: str) -> tuple[Bridge, ...]:
        """The bridges above a device, the outermost first."""
        domain, bus = _place(address)
        found = [one for one in self.bridges if _place(one.address)[0] == domain and one.first <= bus <= one.last]
        return tuple(sorted(found, key=lambda one: one.first))

    def path(self, one: str, other: str) -> tuple[Path, int]:
        """What lies between two devices as far as the bus says, and how many bridges they share."""
        above, beside = self.above(one), self.above(other)
        shared = sum(1 for pair in zip(above, beside, strict=False) if pair[0] == pair[1])
        if shared:
            own = [sum(not bridge.is_board for bridge in chain[shared:]) for chain in (above, beside)]
            return ("PIX" if max(own) <= 1 else "PXB"), shared
        return ("PHB" if self.bridges and _root(above, one) == _root(beside, other) else "?"), 0


def _place(address: str) -> tuple[str, int]:
    domain, _, rest = address.partition(":")
    return domain, number(rest[:2], 16)


def _root(above: Sequence[Bridge], address: str) -> tuple[str, int]:
    """The bus that the root complex itself has."""
    return _place(above[0].address if above else address)


def read(host: HostRoot) -> Bus:
    """The bridges of a machine; those whose buses nobody has numbered lead nowhere."""
    found = {name: _buses(host, name) for name in host.names(PCI)}
    return Bus([_bridge(host, name, *buses) for name, buses in found.items() if 0 < buses[0] <= buses[1]])


def _buses(host: HostRoot, name: str) -> tuple[int, int]:
    first, last = (number(host.text(f"{PCI}/{name}/{kind}_bus_number")) for kind in ("secondary", "subordinate"))
    return first, last


def _bridge(host: HostRoot, name: str, first: int, last: int) -> Bridge:
    return Bridge(name, first, last, number(host.text(f"{PCI}/{name}/vendor"), 16) == _BOARD)
