"""What is connected to what in a node: NUMA nodes, GPUs, the links between them, adapters, and which serves which GPU.

A GPU is here what has a PCI address of its own: partitions of one GPU are one, the two dies of an MI250X are two.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations_with_replacement
from typing import Literal, NamedTuple

from primus_machine.facts import Facts, Gpu
from primus_machine.gpus.devices import PCI, VENDORS
from primus_machine.gpus.visible import choosing, hides_gpus, visible
from primus_preflight.machine import kfd, nics, pci
from primus_preflight.machine.files import cpus, integer, shows_gpus, shows_network
from primus_preflight.machine.nics import Nic

__all__ = ["READS", "Accelerator", "Joint", "Near", "NumaNode", "Topology", "read"]

READS = (
    *kfd.READS,
    *pci.READS,
    *nics.READS,
    *(f"{PCI}/*/current_link_{name}" for name in ("speed", "width")),
    "/sys/devices/system/node/node*/cpulist",
)
_NEAR: Mapping[pci.Path, str] = {
    "PIX": "same PCIe switch",
    "PXB": "same PCIe switches",
    "PHB": "same PCIe root",
    "NODE": "same NUMA node",
}
"""How an adapter serves a GPU, the best first."""


@dataclass(frozen=True, slots=True)
class NumaNode:
    """CPUs and what sits beside them."""

    number: int
    cpus: str
    """In the kernel's list form; empty: not known."""
    cpu_count: int


@dataclass(frozen=True, slots=True)
class Accelerator:
    """A GPU."""

    index: int
    address: str
    model: str
    """`MI300X`; of one that Primus does not know, its PCI ids."""
    mode: str
    """`CPX/NPS1`; empty: it is not partitioned."""
    devices: tuple[int, ...]
    """Which devices of the node are parts of it, as HIP numbers them."""
    parts: tuple[int, ...]
    """Which partitions they are."""
    partitions: int
    """How many there should be."""
    numa: int
    """-1: not known."""
    hive: int = -1
    """Number of the hive, the group that xGMI joins, as this page counts them; -1: none."""
    pcie: str = ""
    """`x16 32.0 GT/s`."""


@dataclass(frozen=True, slots=True)
class Joint:
    """xGMI between two GPUs, or between the partitions of one (`a` is `b`)."""

    a: int
    b: int
    joined: int
    """Pairs of devices with a link in both directions."""
    of: int
    same_hive: bool
    gbytes_per_s: float = 0.0
    """In one direction, of one link; 0: not said."""

    @property
    def state(self) -> Literal["whole", "lost", "none"]:
        """`lost`: there should be a link, and there is none, or not between all partitions."""
        if self.joined == self.of:
            return "whole"
        return "lost" if self.same_hive or self.joined else "none"


class Near(NamedTuple):
    """The adapters that serve a GPU."""

    nics: tuple[Nic, ...]
    how: str
    """What brings them near; where there are none, why."""
    is_known: bool = True


@dataclass(frozen=True, slots=True)
class Topology:
    """A node."""

    host: str
    numa: tuple[NumaNode, ...]
    gpus: tuple[Accelerator, ...] = ()
    nics: tuple[Nic, ...] = ()
    joints: tuple[Joint, ...] = ()
    """Of all pairs; none: see `notes`."""
    notes: tuple[str, ...] = ()
    bus: pci.Bus = field(default_factory=lambda: pci.Bus(()))
    network_is_shown: bool = True
    """Whether adapters are known, if only that there is none."""
    gpus_are_shown: bool = True
    """Whether GPUs are known, if only that there is none."""

    @property
    def hives(self) -> dict[int, list[Accelerator]]:
        """The GPUs of each."""
        return {
            hive: [gpu for gpu in self.gpus if gpu.hive == hive] for hive in sorted({g.hive for g in self.gpus} - {-1})
        }

    @property
    def places(self) -> list[int]:
        """Numbers of the NUMA nodes; -1 at the end: for what sits nobody knows where."""
        found = {one.number for one in self.numa} | {gpu.numa for gpu in self.gpus} | {nic.numa for nic in self.nics}
        return [*sorted(found - {-1}), *({-1} & found)]

    def joint(self, a: int, b: int) -> Joint | None:
        """Between two GPUs; None: not known."""
        low, high = sorted((a, b))
        return next((one for one in self.joints if (one.a, one.b) == (low, high)), None)

    def path(self, one: Accelerator | Nic, other: Accelerator | Nic) -> tuple[pci.Path, int]:
        """What lies between two devices without xGMI, and how many bridges they share."""
        found, shared = self.bus.path(one.address, other.address) if one.address and other.address else ("?", 0)
        if found != "?" and (shared or found == "PHB"):
            return found, shared
        if one.numa < 0 or other.numa < 0:
            return "?", 0
        return ("NODE" if one.numa == other.numa else "SYS"), 0

    def serving(self, gpu: Accelerator) -> Near:
        """The adapters that are nearest to a GPU."""
        used = [nic for nic in self.nics if nic.is_used]
        paths = {nic: self.path(gpu, nic) for nic in used}
        for path, how in _NEAR.items():
            near = [(shared, nic) for nic, (found, shared) in paths.items() if found == path]
            if near:
                deepest = max(shared for shared, _ in near)
                return Near(tuple(nic for shared, nic in near if shared == deepest), how)
        if any(found == "?" for found, _ in paths.values()):
            return Near((), "the machine does not report the NUMA nodes of adapters", is_known=False)
        if used:
            return Near((), "none on its NUMA node")
        return Near((), "no adapter is up" if self.nics else self.no_nics, is_known=self.network_is_shown)

    @property
    def no_gpus(self) -> str:
        """What is to be said where there are no GPUs."""
        return "no GPU" if self.gpus_are_shown else "GPUs not known"

    @property
    def no_nics(self) -> str:
        """What is to be said where there are no adapters."""
        return "no adapter" if self.network_is_shown else "adapters not known"


def read(facts: Facts) -> Topology:
    """The topology of a machine: from the kernel's files alone."""
    groups: dict[tuple[int, str], list[int]] = {}
    hides_all = hides_gpus(facts.gpus, facts.environ)
    for index in range(len(facts.gpus)) if hides_all else visible(facts.gpus, facts.environ):
        groups.setdefault(_place(facts.gpus[index]), []).append(index)
    found = kfd.nodes(facts.host, frozenset(gpu.device_id for gpu in facts.gpus))
    nodes = found if len(found) == len(facts.gpus) else ()
    numa = _numa(facts)
    only = numa[0].number if len(numa) == 1 else -1  # what a machine does not say goes without saying there
    gpus = [_accelerator(facts, index, group, nodes) for index, group in enumerate(groups.values())]
    joints = tuple(_joints([[nodes[at] for at in group] for group in groups.values()])) if nodes else ()
    notes = (*facts.notes, *_notes(facts, len(gpus), joints))
    return Topology(
        facts.hostname,
        numa,
        tuple(gpu if gpu.numa >= 0 else replace(gpu, numa=only) for gpu in gpus),
        tuple(nic if nic.numa >= 0 else replace(nic, numa=only) for nic in nics.read(facts)),
        joints,
        notes,
        pci.read(facts.host),
        shows_network(facts.host),
        shows_gpus(facts.host),
    )


def _place(gpu: Gpu) -> tuple[int, str]:
    """Return what tells a GPU from others: dies of one have addresses of their own; two GPUs may report the same."""
    return gpu.gpu, gpu.pci_address


def _numa(facts: Facts) -> tuple[NumaNode, ...]:
    """As the kernel says; or else the CPUs that the GPU driver sees, which it counts in the same order."""
    nodes = [NumaNode(number, listed, len(cpus(listed))) for number, listed in sorted(facts.numa_cpus.items())]
    return tuple(nodes or [NumaNode(at, "", count) for at, count in enumerate(kfd.cpu_nodes(facts.host).values())])


def _accelerator(facts: Facts, index: int, group: Sequence[int], nodes: Sequence[kfd.KfdNode]) -> Accelerator:
    devices = [facts.gpus[at] for at in group]
    first, node = devices[0], nodes[group[0]] if nodes else None
    hives = list(dict.fromkeys(one.hive for one in nodes if one.hive))
    folder = f"{PCI}/{first.pci_address}"
    width, speed = integer(facts.host, f"{folder}/current_link_width"), facts.host.text(f"{folder}/current_link_speed")
    return Accelerator(
        index=index,
        address=first.pci_address,
        model=first.model or f"unknown {VENDORS[first.vendor]:04x}:{first.device_id:04x}",
        mode=first.mode,
        devices=tuple(group),
        parts=tuple(device.partition for device in devices),
        partitions=first.partitions if len(devices) > 1 or first.mode else 1,
        numa=first.numa_node,
        hive=hives.index(node.hive) if node and node.hive else -1,
        pcie=f"x{width} {(speed or '').removesuffix(' PCIe')}".strip() if width in range(1, 33) else "",
    )


def _joints(groups: Sequence[Sequence[kfd.KfdNode]]) -> Iterable[Joint]:
    """Of all pairs of GPUs whose links can be read."""
    reached = {node.number: node.xgmi for group in groups for node in group}
    for (a, one), (b, other) in combinations_with_replacement(enumerate(groups), 2):
        pairs = [(x, y) for x in one for y in other if x.number < y.number or a != b]
        ends = [(x.number, y.number, reached[x.number], reached[y.number]) for x, y in pairs]
        if pairs and all(there is not None and back is not None for _, _, there, back in ends):
            joined = sum(y in (there or ()) and x in (back or ()) for x, y, there, back in ends)
            same = bool(one[0].hive) and one[0].hive == other[0].hive
            yield Joint(a, b, joined, len(pairs), same, _fastest(one[0], other))


def _fastest(node: kfd.KfdNode, others: Sequence[kfd.KfdNode]) -> float:
    there = {other.number for other in others}
    return max((link.bandwidth for link in node.links or () if link.is_xgmi and link.to in there), default=0) / 1000


def _notes(facts: Facts, gpus: int, joints: Sequence[Joint]) -> Iterable[str]:
    total = len({_place(gpu) for gpu in facts.gpus})
    if 0 < gpus < total:
        names = ", ".join(choosing(facts.gpus, facts.environ))
        yield f"{gpus} of {total} GPUs are shown, those that {names} leaves visible"
    if gpus > 1 and facts.gpus[0].vendor == "nvidia":
        yield "the kernel does not report NVLink: use nvidia-smi topo -m"
    elif gpus > 1 and sum(joint.a != joint.b for joint in joints) < gpus * (gpus - 1) // 2:
        yield "not all links between GPUs can be read: the driver's io_links are not shown"
