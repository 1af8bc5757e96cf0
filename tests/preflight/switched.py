"""A healthy node with its PCIe switches: two GPUs and two adapters below each, every GPU behind bridges of its own board."""

from __future__ import annotations

from tests.machine.machines import IB, PCI
from tests.preflight import nodes
from tests.preflight.nodes import Tree

_BUSES = tuple(int(address[5:7], 16) for address in nodes.ADDRESSES)
ADAPTERS = tuple(f"0000:{bus + 1:02x}:00.0" for bus in _BUSES)
"""Each is on the bus after that of a GPU."""
_ROOTS = (0x00, 0x40, 0x80, 0xC0)
"""Buses of the root complex."""


def node(layer: str = "Ethernet") -> Tree:
    """The whole node."""
    tree = {path: text for path, text in nodes.healthy(layer).items() if "/0000:04:00.0/" not in path}
    for index, address in enumerate(ADAPTERS):
        about = f"{IB}/mlx5_{index}/device/uevent"
        tree[about] = f"{nodes.text(tree, about)}PCI_SLOT_NAME={address}\n"
    for pair, root in enumerate(_ROOTS):
        tree |= _below(root, *_BUSES[2 * pair : 2 * pair + 2])
    return tree


def _below(root: int, *gpus: int) -> Tree:
    """A root port, a switch, and what hangs at its ports."""
    first, last = gpus[0] - 4, gpus[-1] + 1
    tree = bridge(root, 0, first, last) | bridge(first, 0, first + 1, last)
    for at, bus in enumerate(gpus):
        tree |= bridge(first + 1, 2 * at, bus - 2, bus) | bridge(first + 1, 2 * at + 1, bus + 1, bus + 1)
        tree |= bridge(bus - 2, 0, bus - 1, bus, "0x1002") | bridge(bus - 1, 0, bus, bus, "0x1002")
    return tree


def bridge(bus: int, device: int, first: int, last: int, vendor: str = "0x1000") -> Tree:
    """A PCI bridge, with the buses behind it."""
    folder = f"{PCI}/0000:{bus:02x}:{device:02x}.0"
    return {
        f"{folder}/vendor": f"{vendor}\n",
        f"{folder}/secondary_bus_number": f"{first}\n",
        f"{folder}/subordinate_bus_number": f"{last}\n",
    }
