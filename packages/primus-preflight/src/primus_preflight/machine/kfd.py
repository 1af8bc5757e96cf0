"""The GPU nodes of the AMD driver's topology, with the links between them, which detection does not need."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from primus_machine.host import HostRoot, number, numbered

__all__ = ["FOLDER", "LINKS", "READS", "KfdNode", "Link", "cpu_nodes", "nodes"]

FOLDER = "/sys/class/kfd/kfd/topology/nodes"
LINKS = ("io_links", "p2p_links")
READS = (f"{FOLDER}/*/properties", *(f"{FOLDER}/*/{kind}/*/properties" for kind in LINKS))
_XGMI = 11
"""Type of a link, from Linux, include/uapi/linux/kfd_sysfs.h."""


class Link(NamedTuple):
    """What leads from one node to another."""

    to: int
    kind: int
    weight: int
    """How far it is, as the driver sees it: 15 one link of xGMI, 20 the CPU's own PCIe, 52 the other CPU's."""
    bandwidth: int
    """The most, in MB/s; 0: not said."""

    @property
    def is_xgmi(self) -> bool:
        """Whether it joins GPUs without PCIe."""
        return self.kind == _XGMI


class KfdNode(NamedTuple):
    """A device of the topology."""

    number: int
    properties: Mapping[str, int]
    links: tuple[Link, ...] | None
    """None: they cannot be read."""

    @property
    def xgmi(self) -> frozenset[int] | None:
        """The nodes to which xGMI leads; None: the links cannot be read."""
        return None if self.links is None else frozenset(link.to for link in self.links if link.is_xgmi)

    @property
    def address(self) -> str:
        """Of its GPU on the PCI bus. The function carries the partition: a GPU itself is function 0."""
        place, domain = self.properties.get("location_id", 0), self.properties.get("domain", 0)
        return f"{domain & 0xFFFFFFFF:04x}:{place >> 8 & 0xFF:02x}:{place >> 3 & 0x1F:02x}.0"

    @property
    def hive(self) -> int:
        """Number of the group that xGMI joins; 0: none."""
        return self.properties.get("hive_id", 0)


def nodes(host: HostRoot, device_ids: frozenset[int]) -> tuple[KfdNode, ...]:
    """The nodes with these PCI device ids, as the driver numbers them."""
    found = ((node, _properties(host, f"{FOLDER}/{name}")) for node, name in numbered(host.names(FOLDER)).items())
    return tuple(
        KfdNode(node, properties or {}, _links(host, f"{FOLDER}/{node}"))
        for node, properties in found
        if properties and properties.get("simd_count") and properties.get("device_id") in device_ids
    )


def cpu_nodes(host: HostRoot) -> dict[int, int]:
    """The nodes that are CPUs, with how many each has."""
    found = {node: _properties(host, f"{FOLDER}/{name}") or {} for node, name in numbered(host.names(FOLDER)).items()}
    return {node: cores for node, one in found.items() if (cores := one.get("cpu_cores_count", 0))}


def _properties(host: HostRoot, folder: str) -> dict[str, int] | None:
    text = host.text(f"{folder}/properties")
    words = (line.split() for line in (text or "").splitlines())
    return {one[0]: number(one[1]) for one in words if len(one) == 2} if text is not None else None


def _links(host: HostRoot, folder: str) -> tuple[Link, ...] | None:
    """None where a link's file cannot be read: it might be the one that is missed."""
    if "io_links" not in host.names(folder):
        return None
    paths = [f"{folder}/{kind}/{name}" for kind in LINKS for name in host.names(f"{folder}/{kind}")]
    found = [_properties(host, path) for path in paths]
    if any(link is None for link in found):
        return None
    return tuple(
        Link(link["node_to"], link.get("type", 0), link.get("weight", 0), link.get("max_bandwidth", 0))
        for link in found
        if link and "node_to" in link
    )
